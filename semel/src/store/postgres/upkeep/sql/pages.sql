-- The tables that hold the records, and the number of pages of each: one table, unless an operator
-- has split it into partitions. A table that is being dropped has none.
select part.id::regclass::text, coalesce(pg_relation_size(part.id), 0) / current_setting('block_size')::bigint
from (
    select relid as id from pg_partition_tree('semel.records') where isleaf
    union
    select oid from pg_class where oid = 'semel.records'::regclass and relkind = 'r'
) as part
order by part.id
