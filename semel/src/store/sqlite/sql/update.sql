-- Writes a whole record over the one with its id. The key does not change.
--
-- The statement expects nothing: its sender has read the record in the same transaction, which
-- holds the lock of the only writer, so no other connection can have changed it since. No other
-- code sends it.
--
-- ?1 id, then the columns below, in their order
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
    retention = ?11,
    after_crash = ?12,
    finished_at = ?13,
    operation = ?14,
    resource = ?15,
    fingerprint = ?16,
    fingerprint_version = ?17,
    owner = ?18,
    note_at = ?19,
    note = ?20,
    status = ?21,
    subtype = ?22,
    headers = ?23,
    body = ?24,
    expires_at = ?25
where id = ?1
