-- Reads records unchanged, whether expired or not. Outcomes over the limit are left out: Postgres
-- knows their sizes without loading them.
--
-- $1 ids, without repeats, $2 the largest number of bytes that headers and body of a record may
-- have together
--
-- Result: at least one row: the clock, and a record; the last column is the number of bytes that
-- were left out, if any were.
select
    clock.now,
    record.id, record.version::bigint, record.token, record.fence, record.attempt, record.state, record.operation,
    record.resource, record.fingerprint, record.fingerprint_version, record.owner, record.lease_until,
    coalesce(record.heartbeat_at, record.created_at), record.created_at,
    coalesce(record.finished_at, record.updated_at, record.created_at), record.retention, record.after_crash,
    record.finished_at,
    record.note_at, record.note, record.status, record.subtype,
    case when record.bytes <= $2::integer then record.headers end,
    case when record.bytes <= $2::integer then record.body end,
    case when record.bytes > $2::integer then record.bytes end
from (select clock_timestamp() as now) as clock
left join (
    select *, coalesce(octet_length(headers), 0) + coalesce(octet_length(body), 0) as bytes
    from semel.records
) as record on record.id = any ($1::bytea[])
