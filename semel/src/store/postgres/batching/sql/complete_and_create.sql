-- Records outcomes and creates records in one statement, which commits by itself: complete.sql and
-- create.sql together, as most batches under load need both.
--
-- $1 ids of outcomes, in order and without repeats, $2 tokens, $3 fences, $4 statuses, $5 subtypes,
-- $6 headers, $7 bodies; $8 ids of claims, in order and without repeats, $9 tokens, $10 realms, $11
-- principals, $12 keys, $13 operations, $14 resources, $15 fingerprints, $16 their versions, $17
-- owners, $18 leases, $19 retentions in microseconds, $20 policies after a crash, $21 not_after
--
-- Result: a row for each record that was written or created: the clock, the id, and of a created
-- one the fence.
with
completed as (
    update semel.records as record
    set version = record.version + 1,
        finished_at = clock.now,
        state = 'done',
        status = asked.status,
        subtype = asked.subtype,
        headers = asked.headers,
        body = asked.body
    from (select clock_timestamp() as now) as clock
    cross join (
        select
            unnest($1::bytea[]) as id,
            unnest($2::bytea[]) as token,
            unnest($3::bigint[]) as fence,
            unnest($4::smallint[]) as status,
            unnest($5::text[]) as subtype,
            unnest($6::bytea[]) as headers,
            unnest($7::bytea[]) as body
    ) as asked
    where record.id = asked.id
        and record.token = asked.token
        and record.fence = asked.fence
        and record.state = 'running'
    returning record.finished_at, record.id
),
created as (
    insert into semel.records (
        id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
        fingerprint_version, owner, lease_until, created_at, retention, after_crash
    )
    select
        asked.id, 1, asked.token, clock.fence, 1, 'running', asked.realm, asked.principal,
        asked.key, asked.operation, asked.resource, asked.fingerprint, asked.fingerprint_version, asked.owner,
        clock.now + asked.lease, clock.now, asked.retention, asked.after_crash
    from (
        select now, (extract(epoch from now) * 1000000)::bigint as fence
        from (select clock_timestamp() as now) as moment
        offset 0
    ) as clock
    cross join (
        select
            unnest($8::bytea[]) as id,
            unnest($9::bytea[]) as token,
            unnest($10::text[]) as realm,
            unnest($11::text[]) as principal,
            unnest($12::text[]) as key,
            unnest($13::text[]) as operation,
            unnest($14::text[]) as resource,
            unnest($15::bytea[]) as fingerprint,
            unnest($16::smallint[]) as fingerprint_version,
            unnest($17::text[]) as owner,
            unnest($18::interval[]) as lease,
            unnest($19::bigint[]) as retention,
            unnest($20::text[]) as after_crash,
            unnest($21::timestamptz[]) as not_after
    ) as asked
    where clock.now <= asked.not_after
        and not exists (select from semel.records as record where record.id = asked.id)
    returning created_at, id, fence
)
select *, null::bigint from completed
union all
select * from created
