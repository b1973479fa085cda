-- Writes a whole record in the place of one that still has the expected token and version, and raises fence and version.
--
-- A row that somebody's open transaction has locked is left alone, and nobody waits for it. So is one whose `not_after` is over.
--
-- $1 ids, in order and without repeats, $2 expected tokens, $3 expected versions, $4 not_after or null, $5 tokens, $6 attempts,
-- $7 states, $8 operations, $9 resources, $10 fingerprints, $11 their versions, $12 owners, $13 leases, $14 retentions or null to keep
-- the end, $15 whether a new life begins, $16 notes or null to keep the note, $17 statuses, $18 subtypes, $19 headers, $20 bodies
--
-- One row at least: the clock, and id, fence and end of the lease of what was replaced.
with
clock as materialized (
    select clock_timestamp() as now
),
expected as materialized (
    select asked.*
    from clock
    cross join unnest(
        $1::bytea[], $2::bytea[], $3::bigint[], $4::timestamptz[], $5::bytea[], $6::integer[],
        $7::text[], $8::text[], $9::text[], $10::bytea[], $11::smallint[], $12::text[], $13::interval[], $14::interval[],
        $15::boolean[], $16::text[], $17::smallint[], $18::text[], $19::bytea[], $20::bytea[]
    ) as asked(
        id, expected_token, expected_version, not_after, token, attempt,
        state, operation, resource, fingerprint, fingerprint_version, owner, lease, retention,
        fresh, note, status, subtype, headers, body
    )
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
        expires_at = coalesce(clock.now + expected.retention, record.expires_at),
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
    returning record.id, record.fence, record.lease_until
)
select
    clock.now,
    replaced.*
from clock
left join replaced on true
