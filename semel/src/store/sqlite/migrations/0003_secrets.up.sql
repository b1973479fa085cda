-- The secret by which principals are made of credentials. The first process that needs it makes it.
--
-- It only adds: processes of the version before can run beside it.

create table semel_secrets (
    name  text not null primary key,
    value blob not null check (length(value) between 1 and 1024)
) strict;
