-- How much room the records take up, with indexes, free space and long values, and about how many there are.
--
-- It reads nothing of the table itself: the sizes of its files, and what autovacuum and the statistics know. The number of
-- records lags by a second or so, and after a crash until the next autovacuum.
select
    pg_total_relation_size('semel.records'::regclass),
    coalesce(
        nullif(pg_stat_get_live_tuples('semel.records'::regclass), 0),
        (select greatest(reltuples, 0)::bigint from pg_class where oid = 'semel.records'::regclass)
    )
