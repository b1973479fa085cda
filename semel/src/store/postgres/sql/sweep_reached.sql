-- Notes how far a turn of sweeping has come.
--
-- $1 the next page, $2 whether the next turn may begin at once
update semel.upkeep
set sweep_page = $1,
    sweep_at = now() + case when $2 then interval '0' else interval '50 seconds' end
