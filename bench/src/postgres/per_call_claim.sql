-- Claims one key: creates the record if there is none, otherwise shows its body.
--
-- $1 key, $2 token
with
created as (
    insert into records (
        id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
        fingerprint_version, owner, lease_until, heartbeat_at, created_at, updated_at, retention, after_crash
    )
    select
        sha256(convert_to($1::text, 'UTF8')), 1, $2::bytea, 1, 1, 'running', 'bench', '', $1, 'POST /charges', '',
        sha256('1'), 1, 'bench-1', now() + interval '30 seconds', now(), now(), now(), 86400000000, 'hold'
    where not exists (select from records where id = sha256(convert_to($1, 'UTF8')))
    on conflict (id) do nothing
    returning id
)
select body
from (values (1)) as always
left join records on records.id = sha256(convert_to($1, 'UTF8'))
