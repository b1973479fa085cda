-- The size of the records on disk, with indexes, free space and long values, and their approximate
-- number.
--
-- The statement reads nothing of the table itself: only the sizes of its files, and the statistics
-- of autovacuum and the planner. The number of records lags by a second or so, and after a crash
-- until the next autovacuum.
select
    pg_total_relation_size('semel.records'::regclass),
    coalesce(
        nullif(pg_stat_get_live_tuples('semel.records'::regclass), 0),
        (select greatest(reltuples, 0)::bigint from pg_class where oid = 'semel.records'::regclass)
    )
