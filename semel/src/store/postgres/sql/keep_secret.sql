-- Writes the secret of the principals if there is none, or if the stored one is exactly the
-- expected one.
--
-- Parameters  $1 the expected secret; null expects none
--             $2 the secret
-- Result      one row was written, or none: another secret is stored

insert into semel.secrets as kept (name, value)
values ('principals', $2)
on conflict (name) do update
set value = excluded.value
where kept.value = $1
