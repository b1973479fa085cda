-- The moment before which every unsettled record is in semel.unsettled. Without one, all of them have to be looked for.
select coalesce(max(watermark), '-infinity')
from semel.upkeep
