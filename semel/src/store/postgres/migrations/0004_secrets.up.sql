-- The secret by which principals are made of credentials. The first process that needs it makes it.
--
-- It only adds: processes of the version before can run beside it.

create table semel.secrets (
    name  text  not null primary key,
    value bytea not null check (octet_length(value) between 1 and 1024)
);

comment on table semel.secrets is 'Whoever reads it can guess at credentials behind the principals of semel.records';
