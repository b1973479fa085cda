-- Writes a whole record, in the place of the one with its id if there is one.
--
-- It expects nothing: whoever sends it has read the record in the same transaction, which holds the lock of the only
-- writer, so nobody can have changed it since. Nothing else sends it.
--
-- ?1 id, then what the columns below hold, in their order
insert into semel_records (
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, expires_at, finished_at,
    operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status, subtype, headers, body, realm,
    principal, key
)
values (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26
)
on conflict (id) do update
set version = excluded.version,
    token = excluded.token,
    fence = excluded.fence,
    attempt = excluded.attempt,
    state = excluded.state,
    lease_until = excluded.lease_until,
    heartbeat_at = excluded.heartbeat_at,
    created_at = excluded.created_at,
    updated_at = excluded.updated_at,
    expires_at = excluded.expires_at,
    finished_at = excluded.finished_at,
    operation = excluded.operation,
    resource = excluded.resource,
    fingerprint = excluded.fingerprint,
    fingerprint_version = excluded.fingerprint_version,
    owner = excluded.owner,
    note_at = excluded.note_at,
    note = excluded.note,
    status = excluded.status,
    subtype = excluded.subtype,
    headers = excluded.headers,
    body = excluded.body
