-- No downtime lasts a negative time.
select key, duration_s from stg_downtime where duration_s < 0
