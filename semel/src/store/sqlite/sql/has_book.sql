-- Returns 1 if the table of migrations exists.
select exists (
    select *
    from sqlite_schema
    where type = 'table'
        and name = 'semel_migrations'
)
