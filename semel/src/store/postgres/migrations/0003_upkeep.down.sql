-- Pruning, listing and counting read the whole table again. No record is lost.

drop table semel.upkeep;
drop table semel.unsettled;
drop index semel.records_created_at;
