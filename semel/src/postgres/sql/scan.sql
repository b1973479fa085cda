-- Shows a page of the records that match, in the order of their ids.
--
-- $1 phase, $2 realm, $3 principal, $4 key, $5 operation, $6 whether expired, $7 least age, $8 least time since the last
-- sign of life: each may be null for all. $9 whether only records whose lease is over without an outcome. $10 the id before
-- the page or null, $11 the only id or null, $12 how many.
--
-- One row at least: the clock, and a record with its key.
with
found as (
    select
        id, version::bigint, token, fence, attempt, state, operation, resource, fingerprint, fingerprint_version, owner,
        lease_until, coalesce(heartbeat_at, created_at), created_at, coalesce(finished_at, updated_at, created_at),
        retention, after_crash, finished_at, note_at, note, status, subtype, headers, body, realm, principal, key
    from semel.records
    where case $1::text
            when 'running' then state = 'running' and lease_until > now()
            when 'held' then state = 'running' and lease_until <= now() and after_crash = 'hold'
            when 'lost' then state = 'running' and lease_until <= now() and after_crash <> 'hold'
            when 'done' then state = 'done'
            when 'released' then state = 'released'
            else true
        end
        and ($2::text is null or realm = $2)
        and ($3::text is null or principal = $3)
        and ($4::text is null or key = $4)
        and ($5::text is null or operation = $5)
        and (
            $6::boolean is null
            or $6 = coalesce(
                semel.expires_at(state, after_crash, lease_until, coalesce(finished_at, updated_at, created_at), retention)
                    <= now(),
                false
            )
        )
        and ($7::interval is null or created_at <= now() - $7)
        and ($8::interval is null or coalesce(heartbeat_at, created_at) <= now() - $8)
        and (not $9::boolean or state = 'running' and lease_until <= now())
        and ($10::bytea is null or id > $10)
        and ($11::bytea is null or id = $11)
    order by id
    limit $12::bigint
)
select
    now(),
    found.*
from (values (1)) as always
left join found on true
order by found.id
