-- Records outcomes: applied where token and fence match a running record, at any time.
--
-- Unlike write.sql it waits for a locked row, as long as `lock_timeout` allows; it is sent first,
-- because it logs less.
--
-- $1 ids, in order and without repeats, $2 tokens, $3 fences, $4 statuses, $5 subtypes, $6 headers,
-- $7 bodies
--
-- Result: a row for each record that was written: the clock and the id.
update semel.records as record
set version = record.version + 1,
    finished_at = clock.now,
    state = 'done',
    status = asked.status,
    subtype = asked.subtype,
    headers = asked.headers,
    body = asked.body
from (select clock_timestamp() as now) as clock
cross join (
    select
        unnest($1::bytea[]) as id,
        unnest($2::bytea[]) as token,
        unnest($3::bigint[]) as fence,
        unnest($4::smallint[]) as status,
        unnest($5::text[]) as subtype,
        unnest($6::bytea[]) as headers,
        unnest($7::bytea[]) as body
) as asked
where record.id = asked.id
    and record.token = asked.token
    and record.fence = asked.fence
    and record.state = 'running'
returning record.finished_at, record.id
