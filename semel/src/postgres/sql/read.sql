-- Reads records as they are, whether expired or not.
--
-- $1 ids, without repeats
--
-- One row at least: the clock, and a record.
select
    clock.now,
    record.id, record.version::bigint, record.token, record.fence, record.attempt, record.state, record.operation,
    record.resource, record.fingerprint, record.fingerprint_version, record.owner, record.lease_until,
    coalesce(record.heartbeat_at, record.created_at), record.created_at,
    coalesce(record.finished_at, record.updated_at, record.created_at), record.retention, record.after_crash,
    record.finished_at,
    record.note_at, record.note, record.status, record.subtype, record.headers, record.body
from (select clock_timestamp() as now) as clock
left join semel.records as record on record.id = any ($1::bytea[])
