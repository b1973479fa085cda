-- Removes the records and everything about them.

drop view semel.outcomes;
drop function semel.json_body(bytea);
drop function semel.complete(text, text, text, text, bigint, integer, bytea, jsonb, text);
drop function semel.try_complete(text, text, text, text, bigint, integer, bytea, jsonb, text);
drop function semel.complete_record(bytea, bytea, bigint, integer, text, bytea, bytea);
drop function semel.record_id(text, text, text);
drop table semel.records;
drop domain semel.attempt;
drop domain semel.status;
drop domain semel.state;
drop domain semel.token;
drop domain semel.digest;
