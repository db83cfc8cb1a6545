-- Downtime events and hours by system and month. One row per system, month and set of labels.
select
  system,
  date_trunc('month', started_at) as month,
  access,
  count(*) as events,
  sum(duration_s) / 3600.0 as hours,
  max(duration_s) / 3600.0 as longest_hours
from stg_downtime
group by all
order by system, month, access
