-- Writes as the owner: applied where token and fence match a running record, at any time. A void
-- names no fence.
--
-- A row that another open transaction has locked is skipped without waiting.
--
-- $1 ids, in order and without repeats, $2 tokens, $3 fences or null, $4 actions (renew, complete,
-- release, abandon, hold, void), $5 leases of renewals, $6 notes, $7 statuses, $8 subtypes, $9
-- headers, $10 bodies, $11 the longest retentions of released records, in microseconds, or null
--
-- Result: a row for each record that was written: the clock and the id.
with
clock as materialized (
    select clock_timestamp() as now
),
owned as materialized (
    select asked.*
    from (
        select
            unnest($1::bytea[]) as id,
            unnest($2::bytea[]) as token,
            unnest($3::bigint[]) as fence,
            unnest($4::text[]) as action,
            unnest($5::interval[]) as lease,
            unnest($6::text[]) as note,
            unnest($7::smallint[]) as status,
            unnest($8::text[]) as subtype,
            unnest($9::bytea[]) as headers,
            unnest($10::bytea[]) as body,
            unnest($11::bigint[]) as kept
    ) as asked
    join semel.records as record
        on record.id = asked.id
        and record.token = asked.token
        and record.fence = coalesce(asked.fence, record.fence)
        and record.state = 'running'
    order by asked.id
    for no key update of record skip locked
),
written as (
    update semel.records as record
    set version = record.version + 1,
        updated_at = clock.now,
        state = case owned.action
            when 'complete' then 'done'
            when 'release' then 'released'
            when 'void' then 'released'
            else record.state
        end,
        lease_until = case owned.action
            when 'renew' then clock.now + owned.lease
            when 'abandon' then clock.now
            when 'hold' then clock.now
            else record.lease_until
        end,
        heartbeat_at = case owned.action when 'renew' then clock.now else record.heartbeat_at end,
        finished_at = case owned.action when 'complete' then clock.now end,
        note_at = case when owned.note is not null then clock.now else record.note_at end,
        note = coalesce(owned.note, record.note),
        after_crash = case owned.action when 'hold' then 'hold' else record.after_crash end,
        retention = least(record.retention, owned.kept),
        status = owned.status,
        subtype = owned.subtype,
        headers = owned.headers,
        body = owned.body
    from owned, clock
    where record.id = owned.id
        and record.token = owned.token
        and record.fence = coalesce(owned.fence, record.fence)
        and record.state = 'running'
    returning record.updated_at, record.id
)
select *
from written
