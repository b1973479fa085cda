-- Creates the record of each claim whose key has none, else shows the one that is there.
--
-- A claim after its `not_after` creates nothing. What is there is neither locked nor written: a batch of repeats leaves no
-- trace in the log. Rows are created in the order of their ids, so that two batches never wait for each other in a circle.
-- A row that was committed since this statement began is neither created nor shown: ask again.
--
-- $1 ids, in order and without repeats, $2 tokens, $3 realms, $4 principals, $5 keys, $6 operations, $7 resources, $8 fingerprints,
-- $9 their versions, $10 owners, $11 leases, $12 retentions, $13 not_after
--
-- One row at least: the clock, and the id of a claim with the record or with what was created.
with
clock as materialized (
    select clock_timestamp() as now
),
asked as materialized (
    select
        asked.*,
        record.version,
        record.token as found_token,
        record.fence,
        record.attempt,
        record.state,
        record.operation as found_operation,
        record.resource as found_resource,
        record.fingerprint as found_fingerprint,
        record.fingerprint_version as found_fingerprint_version,
        record.owner as found_owner,
        record.lease_until,
        record.heartbeat_at,
        record.created_at,
        record.updated_at,
        record.expires_at,
        record.finished_at,
        record.note_at,
        record.note,
        record.status,
        record.subtype,
        record.headers,
        record.body
    from unnest(
        $1::bytea[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[],
        $9::smallint[], $10::text[], $11::interval[], $12::interval[], $13::timestamptz[]
    ) as asked(
        id, token, realm, principal, key, operation, resource, fingerprint,
        fingerprint_version, owner, lease, retention, not_after
    )
    left join semel.records as record using (id)
),
created as (
    insert into semel.records (
        id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
        fingerprint_version, owner, lease_until, heartbeat_at, created_at, updated_at, expires_at
    )
    select
        asked.id, 1, asked.token, extract(epoch from clock.now) * 1000000, 1, 'running', asked.realm, asked.principal,
        asked.key, asked.operation, asked.resource, asked.fingerprint, asked.fingerprint_version, asked.owner,
        clock.now + asked.lease, clock.now, clock.now, clock.now, clock.now + asked.retention
    from asked, clock
    where asked.version is null
        and clock.now <= asked.not_after
    order by asked.id
    on conflict (id) do nothing
    returning id, fence, lease_until
),
answered as (
    select
        id, version, found_token, fence, attempt, state, found_operation, found_resource, found_fingerprint,
        found_fingerprint_version, found_owner, lease_until, heartbeat_at, created_at, updated_at, expires_at,
        finished_at, note_at, note, status, subtype, headers, body
    from asked
    where version is not null
    union all
    select
        id, null, null, fence, null, null, null, null, null,
        null, null, lease_until, null, null, null, null,
        null, null, null, null, null, null, null
    from created
)
select
    clock.now,
    answered.*
from clock
left join answered on true
