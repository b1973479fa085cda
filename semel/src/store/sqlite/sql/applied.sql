-- The applied migrations, in order.
--
-- Result: a row for each: version, name, checksum, needs, applied_at.
select version, name, checksum, needs, applied_at
from semel_migrations
order by version
