-- Checks records again that were entered as unsettled: some in turn, and those whose lease was not
-- over.
--
-- An entry is removed when its record is done or gone, or its key has begun a new life. The entry
-- of a released record stays: the key may run again in the same life.
--
-- $1 the number of entries to read: at most 500. Entries whose lease was not over are read only
-- together with 500 others: with fewer, a damaged page is searched for; see check_past.sql. No
-- rows.
with
found as materialized (
    select checked_at, checked_id
    from semel.upkeep
    for update skip locked
),
turn as materialized (
    select entry.created_at, entry.id
    from semel.unsettled as entry
    where (entry.created_at, entry.id) > ((select checked_at from found), (select checked_id from found))
    order by entry.created_at, entry.id
    limit $1::bigint
),
alive as materialized (
    select entry.created_at, entry.id
    from found
    cross join semel.unsettled as entry
    where not entry.is_over
        and $1 >= 500
    limit 500
),
looked as materialized (
    select
        entry.created_at, entry.id, record.after_crash,
        record.state is null or record.state = 'done' or record.created_at <> entry.created_at as is_settled,
        record.state = 'running' and record.lease_until <= now() as is_over
    from (select * from turn union select * from alive) as entry
    left join semel.records as record on record.id = entry.id
),
gone as (
    delete from semel.unsettled as entry
    using looked
    where looked.is_settled
        and entry.created_at = looked.created_at
        and entry.id = looked.id
),
changed as (
    update semel.unsettled as entry
    set after_crash = looked.after_crash,
        is_over = looked.is_over
    from looked
    where not looked.is_settled
        and entry.created_at = looked.created_at
        and entry.id = looked.id
        and (entry.after_crash <> looked.after_crash or entry.is_over <> looked.is_over)
),
last as materialized (
    select created_at, id
    from turn
    order by created_at desc, id desc
    limit 1
),
next as materialized (
    -- A short turn was the last of its round.
    select
        coalesce(last.created_at, '-infinity') as checked_at,
        coalesce(last.id, '') as checked_id
    from (select count(*) as entries from turn) as counted
    left join last on counted.entries >= $1
)
update semel.upkeep
set checked_at = next.checked_at,
    checked_id = next.checked_id
from next
where exists (select from found)
    and (upkeep.checked_at, upkeep.checked_id) <> (next.checked_at, next.checked_id)
