-- Records one outcome.
--
-- $1 key, $2 token, $3 body
update records
set state = 'done',
    status = 200,
    headers = '',
    body = $3::bytea,
    version = version + 1,
    updated_at = now(),
    finished_at = now()
where id = sha256(convert_to($1::text, 'UTF8'))
    and token = $2::bytea
    and fence = 1
    and state = 'running'
