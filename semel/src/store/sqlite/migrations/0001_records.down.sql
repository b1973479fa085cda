-- Removes the records and everything about them.

drop view semel_outcomes;
drop table semel_records;
