-- Writes a secret over the existing one, if any. The lock of the only writer replaces the
-- expectation.
--
-- ?1  the secret

insert into semel_secrets (name, value)
values ('principals', ?1)
on conflict (name) do update
set value = excluded.value
