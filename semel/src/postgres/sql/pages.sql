-- How many pages the table has.
select pg_relation_size('semel.records') / current_setting('block_size')::bigint
