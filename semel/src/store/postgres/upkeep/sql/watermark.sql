-- The moment before which every unsettled record is in semel.unsettled. Without one, all records
-- have to be searched.
select coalesce(max(watermark), '-infinity')
from semel.upkeep
