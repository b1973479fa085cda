-- Records the position of a turn of sweeping.
--
-- $1 the next page, $2 true if the next turn may begin at once
update semel.upkeep
set sweep_page = $1,
    sweep_at = now() + case when $2 then interval '0' else interval '50 seconds' end
