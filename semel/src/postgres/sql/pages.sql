-- The tables that hold the records, and how many pages each has: one, unless somebody has split it into partitions.
select part.id::regclass::text, pg_relation_size(part.id) / current_setting('block_size')::bigint
from (
    select relid as id from pg_partition_tree('semel.records') where isleaf
    union
    select oid from pg_class where oid = 'semel.records'::regclass and relkind = 'r'
) as part
order by part.id
