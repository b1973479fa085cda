-- Counts the records by phase. It reads the whole table: for small ones.
select
    count(*) filter (where state = 'running' and lease_until > now()),
    count(*) filter (where state = 'running' and lease_until <= now() and after_crash = 'hold'),
    count(*) filter (where state = 'running' and lease_until <= now() and after_crash <> 'hold'),
    count(*) filter (where state = 'done'),
    count(*) filter (where state = 'released')
from semel.records
