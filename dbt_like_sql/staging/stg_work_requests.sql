-- Work requests with typed fields. One row a request.
select
  key,
  access,
  title,
  created_at as requested_at,
  coalesce(fields ->> 'status', '(not stated)') as status,
  coalesce(fields ->> 'priority', '') as priority,
  coalesce(fields ->> 'system', '(not stated)') as system,
  coalesce(fields ->> 'component', '(not stated)') as component,
  try_cast(fields ->> 'completed' as timestamptz) as completed_at
from records
where source = 'work_requests'
order by key
