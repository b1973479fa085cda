-- Shows a page, like scan.sql, of the records without an outcome whose lease ends within a span of
-- time: either the held and lost ones, or the running ones. The statement reads only these, by
-- their index.
--
-- ?1 to ?12 as in scan.sql, except ?3, which is unused. ?13 the first moment at which the lease may
-- end, ?14 the last one, ?15 true if the policy is `hold`, false if not, or null for all.
--
-- Result: a row for each record, with its key.
select
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, retention, after_crash,
    finished_at, operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status, subtype, headers, body,
    expires_at, realm, principal, key
from semel_records indexed by semel_records_running
where state = 'running'
    and lease_until >= ?13
    and lease_until <= ?14
    and (?15 is null or ?15 = (after_crash = 'hold'))
    and id >= ?1
    and id <= ?2
    and (?4 is null or realm = ?4)
    and (?5 is null or principal = ?5)
    and (?6 is null or key = ?6)
    and (?7 is null or operation = ?7)
    and (?8 is null or ?8 = coalesce(expires_at <= ?10, false))
    and (?9 is null or created_at <= ?9)
    and (?12 is null or heartbeat_at <= ?12)
order by id
limit ?11
