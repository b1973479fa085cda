-- Counts the running, held and lost records without reading the whole table: the entries from
-- before the watermark, and the records that were created since, by index. An entry whose lease was
-- over is counted in its entered state: later changes are noticed when it is checked; see
-- check.sql. Records are found by their ids (`is not distinct from` uses no index): those of one
-- batch were created at one moment.
--
-- $1 the watermark, as a parameter, so that the planner knows how few records were created since
with
unsettled as (
    select lease_until, after_crash
    from semel.records
    where created_at >= $1::timestamptz
        and state = 'running'
    union all
    select record.lease_until, record.after_crash
    from semel.unsettled as entry
    join semel.records as record on record.id = entry.id and record.created_at is not distinct from entry.created_at
    where entry.created_at < $1
        and not entry.is_over
        and record.state = 'running'
    union all
    select '-infinity', after_crash
    from semel.unsettled
    where created_at < $1
        and is_over
)
select
    count(*) filter (where lease_until > now()),
    count(*) filter (where lease_until <= now() and after_crash = 'hold'),
    count(*) filter (where lease_until <= now() and after_crash <> 'hold')
from unsettled
