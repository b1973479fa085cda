-- The table of migrations: the applied steps, their checksums, and the oldest code that each step
-- allows.
create table if not exists semel.migrations (
    version     integer     primary key check (version > 0),
    name        text        not null,
    checksum    bytea       not null check (octet_length(checksum) = 32),
    needs       integer     not null,
    applied_at  timestamptz not null default clock_timestamp()
);
