-- Reads a record unchanged, whether expired or not.
--
-- ?1 id
--
-- Result: a row if the record exists.
select
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, retention, after_crash,
    finished_at, operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status, subtype, headers, body,
    expires_at
from semel_records
where id = ?1
