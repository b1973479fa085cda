-- Retention counts from the claim again, and no record knows its policy. A held record expires with the retention that
-- it would have had. What was corrected stays so, as it fits the version before as well: semel.complete_record waits for
-- the disk, and semel.json_body stays out of parallel queries.

drop function semel.lock(text, text, text, text, bigint);
drop function semel.lock_record(bytea, bytea, bigint);
drop view semel.outcomes;
drop function semel.expires_at(text, text, timestamptz, timestamptz, bigint);

alter table semel.records rename column retention to expires_at;
alter table semel.records
    alter column expires_at type timestamptz using
        coalesce(finished_at, case state when 'released' then updated_at end, created_at)
        + expires_at * interval '1 microsecond',
    drop column after_crash;
drop domain semel.after_crash;
alter domain semel.status drop constraint status_check;
alter domain semel.status add constraint status_check check (value between 100 and 999);

comment on column semel.records.expires_at is null;
comment on column semel.records.lease_until is 'A running record past this moment is held';

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
