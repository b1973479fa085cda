-- Records one outcome: applied where token and fence match a running record, at any time. It does
-- for one outcome what complete.sql does for many, in less time.
--
-- $1 id, $2 token, $3 fence, $4 status, $5 subtype, $6 headers, $7 body
--
-- Result: a row if the record was written: the clock and the id.
update semel.records as record
set version = record.version + 1,
    finished_at = clock.now,
    state = 'done',
    status = $4::smallint,
    subtype = $5::text,
    headers = $6::bytea,
    body = $7::bytea
from (select clock_timestamp() as now) as clock
where record.id = $1::bytea
    and record.token = $2::bytea
    and record.fence = $3::bigint
    and record.state = 'running'
returning record.finished_at, record.id
