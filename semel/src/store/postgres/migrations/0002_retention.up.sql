-- Retention counts from what settles a record, and every record knows what happens if its attempt
-- is lost.
--
-- It needs the code of this version: older processes would take over held attempts. Stop them
-- first. The table is made anew, under a lock that nothing else passes. What is there is taken for
-- `hold`, the policy under which nothing runs twice.
--
-- An informational status is no outcome any more. A record of one is held, because its attempt has
-- run.

drop view semel.outcomes;

update semel.records
set state = 'running',
    status = null,
    subtype = null,
    headers = null,
    body = null,
    finished_at = null,
    lease_until = least(lease_until, finished_at),
    version = version + 1,
    note_at = finished_at,
    note = format('held: the recorded answer had the status %s, which is no final one', status)
where status < 200;
alter domain semel.status drop constraint status_check;
alter domain semel.status add constraint status_check check (value between 200 and 999);

create domain semel.after_crash as text check (value in ('hold', 'retry', 'transactional'));

-- The table is made anew, for the place of the new column: completion leaves it alone, so it comes before those that
-- completion writes, like all others of its kind. Behind the body it cost a completion a seventh of its time. Rights
-- that were granted on the table have to be granted again.
do $$
begin
    if (select relkind from pg_class where oid = 'semel.records'::regclass) <> 'r' then
        raise exception 'the table of the records is partitioned' using hint = 'Make it a plain table, migrate, and partition it again.';
    end if;
end
$$;
alter table semel.records rename to records_before;
alter table semel.records_before rename constraint records_pkey to records_before_pkey;

create table semel.records (
    fence               bigint              not null,
    created_at          timestamptz         not null,
    -- In microseconds: 8 bytes, where an interval has 16.
    retention           bigint              not null,
    lease_until         timestamptz         not null,
    heartbeat_at        timestamptz,
    note_at             timestamptz,
    attempt             semel.attempt       not null,
    fingerprint_version smallint            not null,
    id                  semel.digest        not null,
    token               semel.token         not null,
    fingerprint         semel.digest        not null,
    realm               text                not null,
    principal           text                not null,
    key                 text                not null,
    operation           text                not null,
    resource            text                not null,
    owner               text                not null,
    after_crash         semel.after_crash   not null,
    note                text,
    updated_at          timestamptz,
    finished_at         timestamptz,
    version             integer             not null,
    status              semel.status,
    state               semel.state         not null,
    subtype             text,
    headers             bytea,
    body                bytea,

    -- An outcome when done, always, and never otherwise. A done record may lack its body, which was
    -- then over the limit.
    constraint outcome_if_done check (
        case
            when state = 'done' then num_nulls(finished_at, status, headers) = 0
            else num_nonnulls(finished_at, status, subtype, headers, body) = 0
        end
    ),
    constraint note_with_moment check (num_nulls(note, note_at) <> 1)
) with (
    fillfactor = 35,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

do $$
begin
    alter table semel.records alter column body set compression lz4;
    alter table semel.records alter column headers set compression lz4;
exception
    when feature_not_supported then null;
end
$$;

insert into semel.records (
    fence, created_at, retention, lease_until, heartbeat_at, note_at, attempt, fingerprint_version, id, token,
    fingerprint, realm, principal, key, operation, resource, owner, after_crash, note, updated_at, finished_at, version,
    status, state, subtype, headers, body
)
select
    fence, created_at,
    greatest(
        0,
        extract(epoch from expires_at - coalesce(finished_at, case state when 'released' then updated_at end, created_at))
            * 1000000
    )::bigint,
    lease_until, heartbeat_at, note_at, attempt, fingerprint_version, id, token, fingerprint, realm, principal, key,
    operation, resource, owner, 'hold', note, updated_at, finished_at, version, status, state, subtype, headers, body
from semel.records_before;
drop table semel.records_before;
alter table semel.records add primary key (id);

comment on table semel.records is 'One row for each idempotency key, written by semel';
comment on column semel.records.id is 'Digest of realm, principal and key; see semel.record_id';
comment on column semel.records.fence is 'Rises with every grant of the key: compare it to refuse a stale writer';
comment on column semel.records.heartbeat_at is 'Null until the lease is renewed or the key is taken over';
comment on column semel.records.updated_at is 'Null if nothing changed but that the record was created, and perhaps completed';
comment on column semel.records.headers is 'For each: 2 bytes length, name, 4 bytes length, value';
comment on column semel.records.body is 'Null in a done record: the body was over the limit and is omitted';
comment on column semel.records.retention is 'In microseconds, from what settled the record; see semel.expires_at';
comment on column semel.records.after_crash is 'What happens if the lease runs out: hold, retry or transactional';
comment on column semel.records.lease_until is 'A running record past this moment is held or lost';

-- When a record counts as absent and may be pruned: its retention begins when it is done or
-- released, or when the lease of a lost attempt is over. Null, which is never, for an attempt under
-- `hold` that has no outcome.
create function semel.expires_at(
    state text,
    after_crash text,
    lease_until timestamptz,
    settled_at timestamptz,
    retention bigint
)
returns timestamptz
language sql
stable
parallel safe
as $$
    select case
        when state <> 'running' then settled_at
        when after_crash <> 'hold' then lease_until
    end + retention * interval '1 microsecond'
$$;

-- The records for people and reports: the phase in place of the stored state, sizes, and JSON
-- bodies as jsonb.
create view semel.outcomes as
select
    realm,
    principal,
    key,
    operation,
    resource,
    case
        when state <> 'running' or lease_until > clock_timestamp() then state
        when after_crash = 'hold' then 'held'
        else 'lost'
    end as phase,
    attempt,
    fence,
    owner,
    status,
    subtype,
    octet_length(body) as body_bytes,
    semel.json_body(body) as body,
    created_at,
    finished_at,
    semel.expires_at(state, after_crash, lease_until, coalesce(finished_at, updated_at, created_at), retention)
        as expires_at,
    after_crash,
    note_at,
    note
from semel.records;

-- A function with an exception block must not run in a parallel query, nor in the build of an index
-- by several workers: not even in the process that leads them, which is why it is not `restricted`.
alter function semel.json_body(bytea) parallel unsafe;

-- As before, and an outcome is on the disk when its commit is answered, as it is replayed from then
-- on: a transaction that would not wait for that does. Settings that wait, for the disk or for
-- standbys, stay. It holds until the end of the transaction, and is undone with the completion
-- where a savepoint is.
--
-- It finds the record by the index, also where the table is so small that reading all of it would
-- be cheaper: to a serializable transaction all of it would then count as read, and it would fail
-- whenever another key is completed.
create or replace function semel.complete_record(
    record_id bytea,
    token bytea,
    fence bigint,
    status integer,
    subtype text,
    headers bytea,
    body bytea
)
returns text
language plpgsql
set search_path = pg_catalog
set enable_seqscan = off
as $$
declare
    moment timestamptz := clock_timestamp();
    found_record semel.records;
begin
    update semel.records as record
    set state = 'done',
        status = complete_record.status,
        subtype = complete_record.subtype,
        headers = complete_record.headers,
        body = complete_record.body,
        version = record.version + 1,
        finished_at = moment
    where record.id = record_id
        and record.token = complete_record.token
        and record.fence = complete_record.fence
        and record.state = 'running';
    if found then
        if current_setting('synchronous_commit') = 'off' then
            perform set_config('synchronous_commit', 'on', true);
        end if;
        return 'applied';
    end if;
    select * into found_record from semel.records as record where record.id = record_id;
    return case
        when not found then 'missing'
        when found_record.state <> 'done' then 'superseded'
        when found_record.token = complete_record.token
            and found_record.fence = complete_record.fence
            and found_record.status = complete_record.status
            and found_record.subtype is not distinct from complete_record.subtype
            and found_record.headers = complete_record.headers
            and found_record.body is not distinct from complete_record.body then 'repeated'
        else 'finished'
    end;
end
$$;

-- Locks the record of a running attempt until the end of the caller's transaction: applied where
-- token and fence match. Renewals and takeovers leave a locked record alone, so that it is still
-- the same when it is completed, which repeatable read and serializable insist on. Otherwise it
-- locks nothing and returns the reason: `finished` (an outcome is recorded), `superseded` (another
-- attempt has the key) or `missing`.
create function semel.lock_record(record_id bytea, token bytea, fence bigint)
returns text
language plpgsql
set search_path = pg_catalog
set enable_seqscan = off
as $$
declare
    found_state text;
begin
    perform
    from semel.records as record
    where record.id = record_id
        and record.token = lock_record.token
        and record.fence = lock_record.fence
        and record.state = 'running'
    for no key update;
    if found then
        return 'applied';
    end if;
    select state into found_state from semel.records as record where record.id = record_id;
    return case
        when not found then 'missing'
        when found_state = 'done' then 'finished'
        else 'superseded'
    end;
end
$$;

-- The same for every language, as the first statement of a transaction that ends in semel.complete.
-- A lost lease is an error, before anything was done.
create function semel.lock(realm text, principal text, key text, token text, fence bigint)
returns text
language plpgsql
set search_path = pg_catalog
as $$
declare
    answer text := semel.lock_record(semel.record_id(realm, principal, key), decode(token, 'hex'), fence);
begin
    if answer <> 'applied' then
        raise exception 'the record was not locked: %', answer
            using errcode = 'SM409',
                hint = 'Another attempt has the key, or there is an outcome. Roll back, and answer with what is recorded.';
    end if;
    return answer;
end
$$;
