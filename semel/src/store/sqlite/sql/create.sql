-- Writes the record of a key that has none.
--
-- The statement expects nothing: its sender has read the key in the same transaction, which holds
-- the lock of the only writer, so no other connection can have written since. No other code sends
-- it.
--
-- ?1 id, then the columns below, in their order
insert into semel_records (
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, retention, after_crash,
    finished_at, operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status, subtype, headers, body,
    expires_at, realm, principal, key
)
values (
    ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26,
    ?27, ?28
)
