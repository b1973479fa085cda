-- Reads records as they are, whether expired or not.
--
-- $1 ids, without repeats
--
-- One row at least: the clock, and a record.
with
clock as materialized (
    select clock_timestamp() as now
),
found as (
    select
        record.id, record.version, record.token, record.fence, record.attempt, record.state, record.operation,
        record.resource, record.fingerprint, record.fingerprint_version, record.owner, record.lease_until,
        record.heartbeat_at, record.created_at, record.updated_at, record.expires_at, record.finished_at,
        record.note_at, record.note, record.status, record.subtype, record.headers, record.body
    from unnest($1::bytea[]) as asked(id)
    join semel.records as record using (id)
)
select
    clock.now,
    found.*
from clock
left join found on true
