-- No released record is without labels.
select key from records where access is null or len(access) = 0
