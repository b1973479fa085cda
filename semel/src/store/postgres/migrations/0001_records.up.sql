-- The records, a view of their outcomes, and completion in a transaction of the user's own.
--
-- `semel.` stands for the schema everywhere; the store puts the configured name in its place.

-- The types of the values. They are domains rather than constraints of the table: Postgres parses
-- the text of those again for every statement that writes, which costs more than the rest of a
-- small statement.
create domain semel.digest as bytea check (octet_length(value) = 32);
create domain semel.token as bytea check (octet_length(value) = 16);
create domain semel.state as text check (value in ('running', 'done', 'released'));
create domain semel.status as smallint check (value between 100 and 999);
create domain semel.attempt as integer check (value > 0);

-- Columns that completion leaves alone come first, those it writes come last: Postgres logs of an
-- update only what lies between the common beginning and the common end of both versions of the
-- row. What would only repeat another moment is null.
create table semel.records (
    fence               bigint          not null,
    created_at          timestamptz     not null,
    expires_at          timestamptz     not null,
    lease_until         timestamptz     not null,
    heartbeat_at        timestamptz,
    note_at             timestamptz,
    attempt             semel.attempt   not null,
    fingerprint_version smallint        not null,
    id                  semel.digest    not null,
    token               semel.token     not null,
    fingerprint         semel.digest    not null,
    realm               text            not null,
    principal           text            not null,
    key                 text            not null,
    operation           text            not null,
    resource            text            not null,
    owner               text            not null,
    note                text,
    updated_at          timestamptz,
    finished_at         timestamptz,
    version             integer         not null,
    status              semel.status,
    state               semel.state     not null,
    subtype             text,
    headers             bytea,
    body                bytea,

    primary key (id),

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
    -- Room for the completed versions beside the running ones, all of them, as they come in
    -- batches: the update is heap-only, and no index is touched.
    fillfactor = 35,
    -- Completion leaves one dead row for each live one, so the defaults (a fifth of the table) come
    -- late on a large table.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_cost_delay = 1
);

comment on table semel.records is 'One row for each idempotency key, written by semel';
comment on column semel.records.id is 'Digest of realm, principal and key; see semel.record_id';
comment on column semel.records.fence is 'Rises with every grant of the key: compare it to refuse a stale writer';
comment on column semel.records.heartbeat_at is 'Null until the lease is renewed or the key is taken over';
comment on column semel.records.updated_at is 'Null if nothing changed but that the record was created, and perhaps completed';
comment on column semel.records.lease_until is 'A running record past this moment is held';
comment on column semel.records.headers is 'For each: 2 bytes length, name, 4 bytes length, value';
comment on column semel.records.body is 'Null in a done record: the body was over the limit and is omitted';

-- lz4 is faster, but a server may have been built without it.
do $$
begin
    alter table semel.records alter column body set compression lz4;
    alter table semel.records alter column headers set compression lz4;
exception
    when feature_not_supported then null;
end
$$;

-- The primary key of a record. Keys that begin with the time they were made (UUID version 7, ULID)
-- keep their order, so that new rows are neighbours in the index: time in 6 bytes, then 26 bytes of
-- the digest.
create function semel.record_id(realm text, principal text, key text)
returns bytea
language sql
immutable
strict
parallel safe
set search_path = pg_catalog
as $$
    with
    parts as (
        select convert_to(realm, 'UTF8') as realm, convert_to(principal, 'UTF8') as principal, convert_to(key, 'UTF8') as key
    ),
    digest as (
        select sha256(
            int8send(octet_length(parts.realm)) || parts.realm
            || int8send(octet_length(parts.principal)) || parts.principal
            || int8send(octet_length(parts.key)) || parts.key
        ) as bytes
        from parts
    )
    select case
        when record_id.key ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' then
            decode(substr(record_id.key, 1, 8) || substr(record_id.key, 10, 4), 'hex') || substr(digest.bytes, 1, 26)
        when record_id.key ~* '^[0-7][0-9a-hjkmnp-tv-z]{25}$' then
            (
                select substr(int8send(sum(
                    (strpos('0123456789ABCDEFGHJKMNPQRSTVWXYZ', upper(substr(record_id.key, place, 1))) - 1)::bigint
                    << (5 * (10 - place))
                )::bigint), 3)
                from generate_series(1, 10) as place
            ) || substr(digest.bytes, 1, 26)
        else digest.bytes
    end
    from digest
$$;

-- Records an outcome in the caller's transaction: applied where token and fence match a running
-- record. Otherwise it changes nothing and returns the reason: `repeated` (this very outcome was
-- recorded before), `finished` (another outcome is recorded), `superseded` (another attempt has the
-- key) or `missing`.
create function semel.complete_record(
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

-- The same for every language: the key as text, the token as in the Semel-Token header, the headers
-- as an array of pairs, such as '[["content-type", "application/json"]]'.
create function semel.try_complete(
    realm text,
    principal text,
    key text,
    token text,
    fence bigint,
    status integer,
    body bytea default '',
    headers jsonb default '[]',
    subtype text default null
)
returns text
language plpgsql
set search_path = pg_catalog
as $$
declare
    framed bytea;
begin
    if jsonb_typeof(headers) is distinct from 'array' then
        raise exception 'headers are not an array of pairs' using errcode = 'invalid_parameter_value';
    end if;
    if exists (
        select from jsonb_array_elements(headers) as header(pair)
        where jsonb_typeof(pair) <> 'array'
            or jsonb_array_length(case jsonb_typeof(pair) when 'array' then pair else '[]' end) <> 2
            or jsonb_typeof(pair -> 0) <> 'string'
            or jsonb_typeof(pair -> 1) <> 'string'
            or pair ->> 0 !~ '^[!-~]([ -~]{0,253}[!-~])?$'
    ) then
        raise exception 'headers hold something that is not a pair of a name and a value'
            using errcode = 'invalid_parameter_value';
    end if;
    select coalesce(string_agg(
        int2send(octet_length(name)::smallint) || name || int4send(octet_length(value)) || value, '' order by place
    ), '')
    into framed
    from (
        select convert_to(pair ->> 0, 'UTF8') as name, convert_to(pair ->> 1, 'UTF8') as value, place
        from jsonb_array_elements(headers) with ordinality as header(pair, place)
    ) as header;
    if octet_length(framed) > 65536 + 6 * jsonb_array_length(headers) then
        raise exception 'headers are over the limit of 65536 bytes together' using errcode = 'invalid_parameter_value';
    end if;
    if octet_length(body) > 16777216 then
        raise exception 'body is % bytes long, the limit is 16777216', octet_length(body)
            using errcode = 'invalid_parameter_value';
    end if;
    if subtype !~ '^[!-~]([ -~]{0,62}[!-~])?$' then
        raise exception 'subtype is not 1 to 64 printable ASCII characters' using errcode = 'invalid_parameter_value';
    end if;
    return semel.complete_record(
        semel.record_id(realm, principal, key), decode(token, 'hex'), fence, status, subtype, framed, body
    );
end
$$;

-- As try_complete, but whatever is not applied is an error, which undoes the whole transaction: an
-- effect whose outcome is not recorded must not stay, nor a second effect of the same outcome.
create function semel.complete(
    realm text,
    principal text,
    key text,
    token text,
    fence bigint,
    status integer,
    body bytea default '',
    headers jsonb default '[]',
    subtype text default null
)
returns text
language plpgsql
set search_path = pg_catalog
as $$
declare
    answer text := semel.try_complete(realm, principal, key, token, fence, status, body, headers, subtype);
begin
    if answer <> 'applied' then
        raise exception 'the outcome was not recorded: %', answer
            using errcode = 'SM409',
                hint = 'Another attempt has the key, or there is an outcome. Roll back, and answer with what is recorded.';
    end if;
    return answer;
end
$$;

-- A body as JSON, or null if it is not JSON that Postgres can hold.
create function semel.json_body(body bytea)
returns jsonb
language plpgsql
immutable
strict
parallel safe
set search_path = pg_catalog
as $$
begin
    return convert_from(body, 'UTF8')::jsonb;
exception
    when others then return null;
end
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
    case when state = 'running' and lease_until <= clock_timestamp() then 'held' else state end as phase,
    attempt,
    fence,
    owner,
    status,
    subtype,
    octet_length(body) as body_bytes,
    semel.json_body(body) as body,
    created_at,
    finished_at,
    expires_at,
    note_at,
    note
from semel.records;
