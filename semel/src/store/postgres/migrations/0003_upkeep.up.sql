-- Upkeep that reads little: an index by creation, and what is known of the records behind a watermark.
--
-- It only adds: processes of the version before can run beside it. While the index is built, the table can be read but
-- not written.

-- Completion never changes the column, so that it stays a heap-only update. An index on the state would end that, and so
-- would one whose predicate names the state.
create index records_created_at on semel.records (created_at);

-- The attempts without an outcome that were created before the watermark. A record stays here, whatever becomes of it,
-- until it is seen to be done or gone: from then on its key can only run again in a new life, with a later creation.
create table semel.unsettled (
    created_at  timestamptz         not null,
    id          semel.digest        not null,
    after_crash semel.after_crash   not null,
    -- Whether the lease was over when the record was last looked at.
    is_over     boolean             not null,

    primary key (created_at, id)
) with (autovacuum_vacuum_scale_factor = 0.02);

comment on table semel.unsettled is 'Records before semel.upkeep.watermark that may be running, held or lost';

-- How far the upkeep has come, in one row.
create table semel.upkeep (
    only_row        boolean     primary key default true check (only_row),
    -- Every running record that was created before this moment is in semel.unsettled.
    watermark       timestamptz not null,
    -- A moment, and the transaction that noted it: when all with a lower number have ended, the watermark can follow.
    candidate_at    timestamptz not null,
    candidate_xid   xid8        not null,
    -- The last entry of semel.unsettled whose record was looked at.
    checked_at      timestamptz not null default '-infinity',
    checked_id      bytea       not null default '',
    -- Where the next sweep for expired records begins, and when.
    sweep_page      bigint      not null default 0,
    sweep_at        timestamptz not null default now()
);

comment on table semel.upkeep is 'How far pruning and the search for held and lost records have come';

-- The table is locked against writers since the index was made: there is no transaction that could still commit a record.
-- The minute is for one whose clock was read before it met the lock.
insert into semel.upkeep (watermark, candidate_at, candidate_xid)
select now() - interval '60 seconds', now(), pg_current_xact_id();

insert into semel.unsettled (created_at, id, after_crash, is_over)
select created_at, id, after_crash, lease_until <= now()
from semel.records
where state = 'running';
