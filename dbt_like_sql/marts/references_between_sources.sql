-- How often records of one source state a relation, by relation and feed. One row per source, feed, relation and set
-- of labels.
select
  source,
  feed,
  relation,
  access,
  count(*) as edges,
  count(distinct key) as records
from edges
group by all
order by source, feed, relation, access
