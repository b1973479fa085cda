-- Creates the record of each claim whose key has none.
--
-- A claim after its `not_after` creates nothing, nor does a claim whose key has a record, which is
-- neither locked nor written. If a concurrent transaction creates one of the records, that is a
-- unique violation, and create_carefully.sql is sent. Rows are created in the given order, so that
-- two batches never deadlock.
--
-- $1 ids, in order and without repeats, $2 tokens, $3 realms, $4 principals, $5 keys, $6
-- operations, $7 resources, $8 fingerprints, $9 their versions, $10 owners, $11 leases, $12
-- retentions in microseconds, $13 policies after a crash, $14 not_after
--
-- `offset 0` keeps Postgres from computing the fence for each row.
--
-- Result: a row for each record that was created: the clock, the id and the fence.
insert into semel.records (
    id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
    fingerprint_version, owner, lease_until, created_at, retention, after_crash
)
select
    asked.id, 1, asked.token, clock.fence, 1, 'running', asked.realm, asked.principal,
    asked.key, asked.operation, asked.resource, asked.fingerprint, asked.fingerprint_version, asked.owner,
    clock.now + asked.lease, clock.now, asked.retention, asked.after_crash
from (
    select now, (extract(epoch from now) * 1000000)::bigint as fence
    from (select clock_timestamp() as now) as moment
    offset 0
) as clock
cross join (
    select
        unnest($1::bytea[]) as id,
        unnest($2::bytea[]) as token,
        unnest($3::text[]) as realm,
        unnest($4::text[]) as principal,
        unnest($5::text[]) as key,
        unnest($6::text[]) as operation,
        unnest($7::text[]) as resource,
        unnest($8::bytea[]) as fingerprint,
        unnest($9::smallint[]) as fingerprint_version,
        unnest($10::text[]) as owner,
        unnest($11::interval[]) as lease,
        unnest($12::bigint[]) as retention,
        unnest($13::text[]) as after_crash,
        unnest($14::timestamptz[]) as not_after
) as asked
where clock.now <= asked.not_after
    and not exists (select from semel.records as record where record.id = asked.id)
returning created_at, id, fence
