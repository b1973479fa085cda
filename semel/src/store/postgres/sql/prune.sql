-- Removes expired records from a range of the table's pages. Of a table in partitions, each goes by itself: a row's
-- address is its own only within one of them.
--
-- A row that another transaction has locked is left for another time, without a wait. Whether a row goes is
-- decided under its lock: a key that was claimed again meanwhile stays. Reading pages in their order needs no
-- index, and touches each page once.
--
-- A running record behind the watermark that is missing among the unsettled ones is entered: it was created by hand, restored,
-- or under a clock that has been set since.
--
-- $1 the first row address, $2 the one behind the last, $3 realm or null, $4 how many at most, $5 when the retention must
-- have been over, or null for now
with
looked as materialized (
    select ctid as place, created_at, id, state, after_crash, lease_until
    from semel.records
    where ctid >= $1::text::tid
        and ctid < $2::text::tid
        and (
            semel.expires_at(state, after_crash, lease_until, coalesce(finished_at, updated_at, created_at), retention)
                <= least(now(), $5::timestamptz)
            or state = 'running' and created_at < (select watermark from semel.upkeep)
        )
),
entered as (
    insert into semel.unsettled (created_at, id, after_crash, is_over)
    select created_at, id, after_crash, lease_until <= now()
    from looked
    where state = 'running'
        and created_at < (select watermark from semel.upkeep)
    on conflict do nothing
),
over as materialized (
    select ctid
    from semel.records
    where ctid = any (array(select place from looked))
        and semel.expires_at(state, after_crash, lease_until, coalesce(finished_at, updated_at, created_at), retention)
            <= least(now(), $5::timestamptz)
        and ($3::text is null or realm = $3)
    limit $4::bigint
    for update skip locked
)
delete from semel.records
where ctid = any (array(select ctid from over))
