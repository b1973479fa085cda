-- Reads the secret of the principals.
--
-- Result      the secret; no row if there is none

select value
from semel.secrets
where name = 'principals'
