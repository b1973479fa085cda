-- Retention counts from what settles a record, and every record knows what happens if its attempt is lost.
--
-- It needs the code of this version: older processes would take over held attempts. Stop them first. The table is written
-- again as a whole. What is there is taken for `hold`, the policy under which nothing runs twice.
--
-- An informational status is no outcome any more. A record of one is held, because its attempt has run.

drop view semel_outcomes;
drop index semel_records_expiring;
drop index semel_records_running;

update semel_records
set state = 'running', status = null, subtype = null, headers = null, body = null, finished_at = null,
    lease_until = min(lease_until, finished_at), version = version + 1, note_at = finished_at,
    note = 'held: the recorded answer had the status ' || status || ', which is no final one'
where status < 200;

alter table semel_records rename to semel_records_before;

create table semel_records (
    -- Digest of realm, principal and key. Keys that begin with their time (UUID version 7, ULID) keep that in front.
    id                  blob    not null primary key check (length(id) = 32),
    -- Raised by every write.
    version             integer not null check (version > 0),
    token               blob    not null check (length(token) = 16),
    -- Rises with every grant of the key: compare it to refuse a stale writer.
    fence               integer not null check (fence >= 0),
    attempt             integer not null check (attempt > 0),
    -- Not `in`, for which SQLite would make a table of the three with every write.
    state               text    not null check (state = 'running' or state = 'done' or state = 'released'),
    -- A running record past this moment is held or lost.
    lease_until         integer not null check (lease_until >= 0),
    heartbeat_at        integer not null check (heartbeat_at >= 0),
    created_at          integer not null check (created_at >= 0),
    updated_at          integer not null check (updated_at >= 0),
    -- In microseconds, from what settled the record.
    retention           integer not null check (retention >= 0),
    after_crash         text    not null
        check (after_crash = 'hold' or after_crash = 'retry' or after_crash = 'transactional'),
    -- When the record may be pruned, as the code derives it from the other columns. Null is never: an attempt under `hold`
    -- that has no outcome stays until it is settled.
    expires_at          integer          check (expires_at >= 0),
    finished_at         integer          check (finished_at >= 0),
    realm               text    not null,
    principal           text    not null,
    key                 text    not null,
    operation           text    not null,
    resource            text    not null,
    fingerprint         blob    not null check (length(fingerprint) = 32),
    fingerprint_version integer not null,
    owner               text    not null,
    note_at             integer          check (note_at >= 0),
    note                text,
    status              integer          check (status between 200 and 999),
    subtype             text,
    -- For each: 2 bytes length, name, 4 bytes length, value.
    headers             blob,
    -- Null in a done record: the body was over the limit and is omitted.
    body                blob,

    -- An outcome when done, always, and never otherwise.
    constraint outcome_if_done check (
        case
            when state = 'done' then finished_at is not null and status is not null and headers is not null
            else coalesce(finished_at, status, subtype, headers, body) is null
        end
    ),
    constraint note_with_moment check ((note is null) = (note_at is null))
) strict;

insert into semel_records (
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, finished_at,
    realm, principal, key, operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status,
    subtype, headers, body, retention, after_crash, expires_at
)
select
    id, version, token, fence, attempt, state, lease_until, heartbeat_at, created_at, updated_at, finished_at,
    realm, principal, key, operation, resource, fingerprint, fingerprint_version, owner, note_at, note, status,
    subtype, headers, body,
    max(0, expires_at - case state when 'done' then finished_at when 'released' then updated_at else created_at end),
    'hold',
    case when state <> 'running' then expires_at end
from semel_records_before;

drop table semel_records_before;

-- For pruning: what never expires has no entry.
create index semel_records_expiring on semel_records (expires_at) where expires_at is not null;

-- For the search for held and lost keys. It has no more entries than there are keys without an outcome.
create index semel_records_running on semel_records (lease_until) where state = 'running';

-- The records for people and reports: the phase in place of the stored state, sizes, moments as text, and bodies that
-- are JSON. A text with a zero byte is none: SQLite would read no further than there.
create view semel_outcomes as
select
    realm,
    principal,
    key,
    operation,
    resource,
    case
        when state <> 'running' or lease_until > (julianday('now') - 2440587.5) * 86400000000 then state
        when after_crash = 'hold' then 'held'
        else 'lost'
    end as phase,
    attempt,
    fence,
    owner,
    status,
    subtype,
    length(body) as body_bytes,
    case
        when instr(body, x'00') = 0 and json_valid(cast(body as text)) then json(cast(body as text))
    end as body,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') as created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000000.0, 'unixepoch') as expires_at,
    after_crash,
    strftime('%Y-%m-%dT%H:%M:%fZ', note_at / 1000000.0, 'unixepoch') as note_at,
    note
from semel_records;
