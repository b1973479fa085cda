-- Moves the watermark forward, and enters the records without an outcome that it passes.
--
-- No record may appear behind the watermark that was not read, so the watermark stays behind every
-- transaction that could still commit one. The creation time of a record is the clock of a
-- statement that runs for 30 seconds at most (`statement_timeout`) before it has written the
-- record; so the transaction of a record that was created 60 seconds before the candidate existed
-- when the candidate was recorded, with a lower number than the transaction that recorded it. All
-- of those have ended when no lower number is in progress in this snapshot. (The snapshot's xmax
-- would not do for the candidate: numbers above it may be in use.) Waiting for locks takes no time
-- here: a process that finds another one at work leaves the work to it.
--
-- A clock that was set back takes the watermark with it, and a candidate that another server has
-- recorded is replaced. A record that is nevertheless created behind the watermark, by hand or by
-- such a clock, is entered by the next sweep; see prune.sql.
--
-- $1 the largest number of records to pass. Result: a row if the watermark moved: whether there are
-- more to pass.
with
found as materialized (
    select watermark, candidate_at, candidate_xid
    from semel.upkeep
    for update skip locked
),
reach as materialized (
    select
        least(watermark, now() - interval '60 seconds') as start,
        pg_snapshot_xmin(pg_current_snapshot()) >= candidate_xid and candidate_at <= now() as is_ripe,
        candidate_at > now() or candidate_xid > pg_snapshot_xmax(pg_current_snapshot()) as is_foreign,
        candidate_at - interval '60 seconds' as safe
    from found
),
passed as materialized (
    select created_at, id, state, after_crash, lease_until
    from semel.records
    where created_at >= (select start from reach where is_ripe)
        and created_at < (select safe from reach)
    order by created_at
    fetch first ($1::bigint) rows with ties
),
progress as materialized (
    select count(*) >= $1 as is_more, max(created_at) + interval '1 microsecond' as behind
    from passed
),
entered as (
    insert into semel.unsettled (created_at, id, after_crash, is_over)
    select created_at, id, after_crash, lease_until <= now()
    from passed
    where state = 'running'
    on conflict do nothing
)
update semel.upkeep
set watermark = case
        when not reach.is_ripe then reach.start
        when progress.is_more then progress.behind
        else greatest(reach.start, reach.safe)
    end,
    candidate_at = case
        when reach.is_foreign or reach.is_ripe and not progress.is_more then now()
        else candidate_at
    end,
    candidate_xid = case
        when reach.is_foreign or reach.is_ripe and not progress.is_more then pg_current_xact_id()
        else candidate_xid
    end
from reach, progress
where reach.start < watermark
    or reach.is_foreign
    or reach.is_ripe and (
        progress.is_more
        -- A move by less than a second is not written.
        or candidate_at < now() - interval '1 second'
        or reach.safe > reach.start + interval '1 second'
    )
returning progress.is_more
