-- Shows a page of the matching records, the oldest first.
--
-- The statement reads only a part of the table, however few records match: 4,000 rows by the index
-- of their creation, or (for running, held and lost records) first some entries of semel.unsettled,
-- and then by index the records that were created since the watermark. The bounds are parameters,
-- so that the planner knows how little lies between them.
--
-- $1 phase, $2 realm, $3 principal, $4 key, $5 operation, $6 expired or not, $7 least age, $8 least
-- time since the last sign of life: each may be null for all. $9 true for records whose lease is
-- over without an outcome only. $10 and $11 the creation and the id of the last record that was
-- read, or null. $12 the latest creation, or null for now. $13 the only id or null. $14 the number
-- of records to show. $15 the number of entries to read, and $16 the watermark: null for a walk
-- over all records.
--
-- Result: at least one row: the clock, a record with its key or nulls, and at the end whether there
-- is more to read, and the creation and the id of the last record that was read.
with
entered as materialized (
    select entry.created_at, entry.id
    from semel.unsettled as entry
    where $13::bytea is null
        and entry.created_at < $16::timestamptz
        and entry.created_at <= least(now() - coalesce($7::interval, '0'), $12::timestamptz)
        and (entry.created_at, entry.id) > (coalesce($10::timestamptz, '-infinity'), coalesce($11::bytea, ''))
    order by entry.created_at, entry.id
    limit $15::bigint
),
looked as materialized (
    select
        created_at, id,
        case $1::text
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
        and ($8::interval is null or coalesce(heartbeat_at, created_at) <= now() - $8)
        and (not $9::boolean or state = 'running' and lease_until <= now()) as matches
    from (
        select record.*
        from entered
        join semel.records as record on record.id = entered.id and record.created_at is not distinct from entered.created_at
        union all
        (
            select record.*
            from semel.records as record
            where $13::bytea is null
                and record.created_at >= greatest($16::timestamptz, $10::timestamptz, '-infinity')
                and record.created_at <= least(now() - coalesce($7::interval, '0'), $12::timestamptz)
                and (record.created_at, record.id) > (coalesce($10::timestamptz, '-infinity'), coalesce($11::bytea, ''))
                and (select count(*) from entered) < coalesce($15::bigint, 1)
            order by record.created_at, record.id
            limit 4000
        )
        union all
        select record.*
        from semel.records as record
        where record.id = $13::bytea
            and record.created_at <= least(now() - coalesce($7::interval, '0'), $12::timestamptz)
    ) as candidate
),
found as materialized (
    select created_at, id
    from looked
    where matches
    order by created_at, id
    limit $14::bigint
),
reached as materialized (
    select created_at, id
    from (select created_at, id from entered union all select created_at, id from looked) as place
    order by created_at desc, id desc
    limit 1
)
select
    now(),
    record.id, version::bigint, token, fence, attempt, state, operation, resource, fingerprint, fingerprint_version, owner,
    lease_until, coalesce(heartbeat_at, record.created_at), record.created_at,
    coalesce(finished_at, updated_at, record.created_at), retention, after_crash, finished_at, note_at, note, status,
    subtype, headers, body, realm, principal, key,
    (select count(*) from looked where $16::timestamptz is null or created_at >= $16) >= 4000
        or (select count(*) from entered) >= $15::bigint,
    reached.created_at, reached.id
from (values (1)) as always
left join reached on true
left join (found join semel.records as record on record.id = found.id) on true
order by found.created_at, found.id
