-- Moves the watermark forward by a second without reading the records that it passes, because one
-- of them is on a damaged page. The readable ones are entered by the next sweep; see prune.sql.
--
-- The watermark does not pass the moment up to which look.sql may move it. No parameters. No rows.
update semel.upkeep
set watermark = least(watermark + interval '1 second', candidate_at - interval '60 seconds')
where watermark < candidate_at - interval '60 seconds'
    and candidate_at <= now()
    and pg_snapshot_xmin(pg_current_snapshot()) >= candidate_xid
