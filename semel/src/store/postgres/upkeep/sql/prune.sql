-- Removes expired records from a range of the table's pages.
--
-- semel.records is a placeholder, replaced by the name of a partition where there are some. Each is
-- swept by itself: the address of a row is unique only within one of them.
--
-- A row that another transaction has locked is left for a later sweep, without waiting. The
-- decision to remove a row is made under its lock: a key that was claimed again in between stays.
-- Reading pages in their order needs no index, and touches each page once.
--
-- A running record behind the watermark that is missing among the unsettled ones is entered: it was
-- created by hand, restored, or created under a clock that was set since.
--
-- $1 the first row address, $2 the one behind the last, $3 realm or null, $4 the largest number of
-- records, $5 the moment before which the retention must have been over, or null for now
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
