-- Shows a page of the records that match, in the order of their ids.
--
-- $1 phase, $2 realm, $3 principal, $4 key, $5 operation, $6 whether expired, $7 least age: each may be null for all.
-- $8 the id before the page or null, $9 the only id or null, $10 how many.
--
-- One row at least: the clock, and a record with its key.
with
found as (
    select
        id, version::bigint, token, fence, attempt, state, operation, resource, fingerprint, fingerprint_version, owner,
        lease_until, coalesce(heartbeat_at, created_at), created_at, coalesce(finished_at, updated_at, created_at),
        expires_at, finished_at, note_at, note, status, subtype, headers, body, realm, principal, key
    from semel.records
    where case $1::text
            when 'running' then state = 'running' and lease_until > now()
            when 'held' then state = 'running' and lease_until <= now()
            when 'done' then state = 'done'
            when 'released' then state = 'released'
            else true
        end
        and ($2::text is null or realm = $2)
        and ($3::text is null or principal = $3)
        and ($4::text is null or key = $4)
        and ($5::text is null or operation = $5)
        and ($6::boolean is null or $6 = (expires_at <= now() and (state <> 'running' or lease_until <= now())))
        and ($7::interval is null or created_at <= now() - $7)
        and ($8::bytea is null or id > $8)
        and ($9::bytea is null or id = $9)
    order by id
    limit $10::bigint
)
select
    now(),
    found.*
from (values (1)) as always
left join found on true
order by found.id
