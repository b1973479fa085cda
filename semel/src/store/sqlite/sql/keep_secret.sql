-- Keeps a secret in the place of the one that is there, if there is one. The lock of the only writer is the expectation.
--
-- ?1  the secret

insert into semel_secrets (name, value)
values ('principals', ?1)
on conflict (name) do update
set value = excluded.value
