-- Counts the running, held and lost records without reading the whole table: what was entered before the watermark, and what
-- was created since, by index. An entry whose lease was over is counted as it was entered: what became of it since is seen
-- when it is checked; see check.sql. Records are found by their ids (`is not distinct from` uses no index): those of one batch
-- were created at one moment.
--
-- $1 the watermark, as a parameter, so that the planner knows how little was created since
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
