-- Takes the next turn of the upkeep, which moves the watermark and sweeps, if it is due and no other
-- process has it. A turn whose position is not updated for 50 seconds is over.
--
-- No parameters. Result: a row if the turn is taken: its first page.
update semel.upkeep
set sweep_at = now() + interval '50 seconds'
where sweep_at <= now()
    or sweep_at > now() + interval '5 minutes'
returning sweep_page
