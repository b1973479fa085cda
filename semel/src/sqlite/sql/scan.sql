-- Shows a page of the records that match, in the order of their ids. Held and running ones are better asked for in
-- running.sql.
--
-- ?1 the first id that may be on the page, ?2 the last one, ?3 state, ?4 realm, ?5 principal, ?6 key, ?7 operation,
-- ?8 whether expired, ?9 the latest moment of creation: each of ?3 to ?9 may be null for all. ?10 now, ?11 how many.
--
-- A row for each record, with its key.
select
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, expires_at, finished_at,
    operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status, subtype, headers, body, realm,
    principal, key
from semel_records
where id >= ?1
    and id <= ?2
    and (?3 is null or state = ?3)
    and (?4 is null or realm = ?4)
    and (?5 is null or principal = ?5)
    and (?6 is null or key = ?6)
    and (?7 is null or operation = ?7)
    and (?8 is null or ?8 = (expires_at <= ?10 and (state <> 'running' or lease_until <= ?10)))
    and (?9 is null or created_at <= ?9)
order by id
limit ?11
