-- Creates the record of one claim, if its key has none. It does for one claim what create.sql does
-- for many, in less time.
--
-- $1 id, $2 token, $3 realm, $4 principal, $5 key, $6 operation, $7 resource, $8 fingerprint, $9 its
-- version, $10 owner, $11 lease, $12 retention in microseconds, $13 policy after a crash, $14
-- not_after
--
-- Result: a row if the record was created: the clock, the id and the fence.
insert into semel.records (
    id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
    fingerprint_version, owner, lease_until, created_at, retention, after_crash
)
select
    $1::bytea, 1, $2::bytea, extract(epoch from clock.now) * 1000000, 1, 'running', $3::text, $4::text,
    $5::text, $6::text, $7::text, $8::bytea, $9::smallint, $10::text,
    clock.now + $11::interval, clock.now, $12::bigint, $13::text
from (select clock_timestamp() as now) as clock
where clock.now <= $14::timestamptz
    and not exists (select from semel.records as record where record.id = $1::bytea)
returning created_at, id, fence
