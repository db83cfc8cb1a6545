-- Work requests by component and status, with the median days until completion. One row per component, status and
-- set of labels.
select
  component,
  status,
  access,
  count(*) as requests,
  min(requested_at) as first_requested_at,
  max(requested_at) as last_requested_at,
  median(date_diff('hour', requested_at, completed_at) / 24.0) as median_days_to_complete
from stg_work_requests
group by all
order by component, status, access
