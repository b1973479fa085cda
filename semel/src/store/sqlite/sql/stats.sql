-- Counts the records by phase. It reads the whole table, but no bodies.
--
-- ?1 now
--
-- Result: one row: running, held, lost, done, released.
select
    count(*) filter (where state = 'running' and lease_until > ?1),
    count(*) filter (where state = 'running' and lease_until <= ?1 and after_crash = 'hold'),
    count(*) filter (where state = 'running' and lease_until <= ?1 and after_crash <> 'hold'),
    count(*) filter (where state = 'done'),
    count(*) filter (where state = 'released')
from semel_records
