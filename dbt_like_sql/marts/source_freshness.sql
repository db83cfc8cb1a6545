-- How many records each feed serves and how new the newest is. One row per feed and set of labels, so that a reader
-- adds up only the rows that his groups admit.
select
  source,
  feed,
  access,
  count(*) as records,
  max(created_at) as newest_created_at,
  max(coalesce(modified_at, created_at, seen_at)) as newest_change_at,
  max(seen_at) as last_seen_at
from records
group by all
order by source, feed, access
