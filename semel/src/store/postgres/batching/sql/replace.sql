-- Writes a whole record over one that still has the expected token and version, and raises fence
-- and version.
--
-- A record that an open transaction has locked is skipped without waiting. So is an item whose
-- `not_after` is over.
--
-- A released record that runs again keeps its creation time, so it is entered as unsettled if the
-- watermark may have passed that time already; see look.sql. The entry usually exists. If another
-- transaction is entering the same record at this moment, the insert waits until that transaction
-- has ended; it is short, because it belongs to the upkeep. An entry whose lease was over is marked
-- as not over.
--
-- $1 ids, in order and without repeats, $2 expected tokens, $3 expected versions, $4 not_after or
-- null, $5 tokens, $6 attempts, $7 states, $8 operations, $9 resources, $10 fingerprints, $11 their
-- versions, $12 owners, $13 leases, $14 retentions in microseconds, $15 policies after a crash, $16
-- true if a new life begins, $17 notes or null to keep the note, $18 statuses, $19 subtypes, $20
-- headers, $21 bodies
--
-- Result: a row for each record that was replaced: the clock, id, fence and end of the lease.
with
clock as materialized (
    select clock_timestamp() as now
),
expected as materialized (
    select asked.*
    from clock
    cross join (
        select
            unnest($1::bytea[]) as id,
            unnest($2::bytea[]) as expected_token,
            unnest($3::bigint[]) as expected_version,
            unnest($4::timestamptz[]) as not_after,
            unnest($5::bytea[]) as token,
            unnest($6::integer[]) as attempt,
            unnest($7::text[]) as state,
            unnest($8::text[]) as operation,
            unnest($9::text[]) as resource,
            unnest($10::bytea[]) as fingerprint,
            unnest($11::smallint[]) as fingerprint_version,
            unnest($12::text[]) as owner,
            unnest($13::interval[]) as lease,
            unnest($14::bigint[]) as retention,
            unnest($15::text[]) as after_crash,
            unnest($16::boolean[]) as fresh,
            unnest($17::text[]) as note,
            unnest($18::smallint[]) as status,
            unnest($19::text[]) as subtype,
            unnest($20::bytea[]) as headers,
            unnest($21::bytea[]) as body
    ) as asked
    join semel.records as record
        on record.id = asked.id
        and record.token = asked.expected_token
        and record.version = asked.expected_version
    where asked.not_after is null
        or clock.now <= asked.not_after
    order by asked.id
    for no key update of record skip locked
),
replaced as (
    update semel.records as record
    set version = record.version + 1,
        token = expected.token,
        fence = greatest((extract(epoch from clock.now) * 1000000)::bigint, record.fence + 1),
        attempt = expected.attempt,
        state = expected.state,
        operation = expected.operation,
        resource = expected.resource,
        fingerprint = expected.fingerprint,
        fingerprint_version = expected.fingerprint_version,
        owner = expected.owner,
        lease_until = clock.now + expected.lease,
        heartbeat_at = clock.now,
        created_at = case when expected.fresh then clock.now else record.created_at end,
        updated_at = clock.now,
        retention = expected.retention,
        after_crash = expected.after_crash,
        finished_at = case expected.state when 'done' then clock.now end,
        note_at = case
            when expected.note is not null then clock.now
            when not expected.fresh then record.note_at
        end,
        note = case
            when expected.note is not null then expected.note
            when not expected.fresh then record.note
        end,
        status = expected.status,
        subtype = expected.subtype,
        headers = expected.headers,
        body = expected.body
    from expected, clock
    where record.id = expected.id
        and record.token = expected.expected_token
        and record.version = expected.expected_version
    returning
        record.updated_at, record.id, record.fence, record.lease_until, record.created_at, record.after_crash, record.state
),
entered as (
    insert into semel.unsettled (created_at, id, after_crash, is_over)
    select created_at, id, after_crash, false
    from replaced
    where state = 'running'
        and created_at < updated_at - interval '30 seconds'
        and not exists (
            select from semel.unsettled as entry where entry.created_at = replaced.created_at and entry.id = replaced.id
        )
    on conflict do nothing
),
reopened as (
    update semel.unsettled as entry
    set is_over = false,
        after_crash = again.after_crash
    from (
        select entry.created_at, entry.id, replaced.after_crash
        from replaced
        join semel.unsettled as entry on entry.created_at = replaced.created_at and entry.id = replaced.id
        where replaced.state = 'running'
            and entry.is_over
        for update of entry skip locked
    ) as again
    where entry.created_at = again.created_at
        and entry.id = again.id
)
select updated_at, id, fence, lease_until
from replaced
