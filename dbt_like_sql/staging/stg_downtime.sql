-- Downtime events with typed times and durations. One row an event.
select
  key,
  access,
  title,
  created_at as started_at,
  coalesce(fields ->> 'system', '(not stated)') as system,
  coalesce(fields ->> 'cause', '') as cause,
  coalesce(fields ->> 'component', '') as component,
  try_cast(fields ->> 'duration_s' as double) as duration_s
from records
where source = 'downtime'
order by key
