-- The secret that is kept; nothing if there is none.

select value
from semel_secrets
where name = 'principals'
