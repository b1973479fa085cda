-- The stored secret; no row if there is none.

select value
from semel_secrets
where name = 'principals'
