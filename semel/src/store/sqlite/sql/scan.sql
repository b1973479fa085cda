-- Shows a page of the matching records, in the order of their ids. running.sql is better for held,
-- lost and running ones.
--
-- ?1 the first id that may be on the page, ?2 the last one, ?3 state, ?4 realm, ?5 principal, ?6
-- key, ?7 operation, ?8 expired or not, ?9 the latest moment of creation, ?12 the latest sign of
-- life: each of ?3 to ?9 and ?12 may be null for all. ?10 now, ?11 the number of records.
--
-- Result: a row for each record, with its key.
select
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, retention, after_crash,
    finished_at, operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status, subtype, headers, body,
    expires_at, realm, principal, key
from semel_records
where id >= ?1
    and id <= ?2
    and (?3 is null or state = ?3)
    and (?4 is null or realm = ?4)
    and (?5 is null or principal = ?5)
    and (?6 is null or key = ?6)
    and (?7 is null or operation = ?7)
    and (?8 is null or ?8 = coalesce(expires_at <= ?10, false))
    and (?9 is null or created_at <= ?9)
    and (?12 is null or heartbeat_at <= ?12)
order by id
limit ?11
