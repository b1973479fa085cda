-- Writes a whole record in the place of the one with its id. Its key does not change.
--
-- It expects nothing: whoever sends it has read the record in the same transaction, which holds the lock of the only
-- writer, so nobody can have changed it since. Nothing else sends it.
--
-- ?1 id, then what the columns below hold, in their order
update semel_records
set version = ?2,
    token = ?3,
    fence = ?4,
    attempt = ?5,
    state = ?6,
    lease_until = ?7,
    heartbeat_at = ?8,
    created_at = ?9,
    updated_at = ?10,
    expires_at = ?11,
    finished_at = ?12,
    operation = ?13,
    resource = ?14,
    fingerprint = ?15,
    fingerprint_version = ?16,
    owner = ?17,
    note_at = ?18,
    note = ?19,
    status = ?20,
    subtype = ?21,
    headers = ?22,
    body = ?23
where id = ?1
