-- The table of migrations: the applied steps, their checksums, and the oldest code that each step
-- allows.
create table if not exists semel_migrations (
    version    integer primary key check (version > 0),
    name       text    not null,
    checksum   blob    not null check (length(checksum) = 32),
    needs      integer not null,
    applied_at integer not null default (cast((julianday('now') - 2440587.5) * 86400000000 as integer))
) strict;
