-- Whether the book of the migrations is there.
select exists (
    select *
    from sqlite_schema
    where type = 'table'
        and name = 'semel_migrations'
)
