-- The records, and a view of their outcomes. Moments are microseconds since 1970, in UTC.

create table semel_records (
    -- Digest of realm, principal and key. Keys that begin with their time (UUID version 7, ULID)
    -- keep that in front.
    id                  blob    not null primary key check (length(id) = 32),
    -- Raised by every write.
    version             integer not null check (version > 0),
    token               blob    not null check (length(token) = 16),
    -- Rises with every grant of the key: compare it to refuse a stale writer.
    fence               integer not null check (fence >= 0),
    attempt             integer not null check (attempt > 0),
    -- Not `in`, for which SQLite would make a table of the three with every write.
    state               text    not null check (state = 'running' or state = 'done' or state = 'released'),
    -- A running record past this moment is held.
    lease_until         integer not null check (lease_until >= 0),
    heartbeat_at        integer not null check (heartbeat_at >= 0),
    created_at          integer not null check (created_at >= 0),
    updated_at          integer not null check (updated_at >= 0),
    expires_at          integer not null check (expires_at >= 0),
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
    status              integer          check (status between 100 and 999),
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

-- For pruning.
create index semel_records_expiring on semel_records (expires_at);

-- For the search for held keys. It has no more entries than there are keys without an outcome.
create index semel_records_running on semel_records (lease_until) where state = 'running';

-- The records for people and reports: the phase in place of the stored state, sizes, moments as
-- text, and bodies that are JSON. A text with a zero byte is none: SQLite would read no further
-- than there.
create view semel_outcomes as
select
    realm,
    principal,
    key,
    operation,
    resource,
    case
        when state = 'running' and lease_until <= (julianday('now') - 2440587.5) * 86400000000 then 'held'
        else state
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
    strftime('%Y-%m-%dT%H:%M:%fZ', note_at / 1000000.0, 'unixepoch') as note_at,
    note
from semel_records;
