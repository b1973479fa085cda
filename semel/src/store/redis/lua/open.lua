-- Creates the record of a claim if there is none, otherwise shows the existing one.
--
-- Key        the record
-- Arguments  not_after; lease, retention and grace in microseconds; token; intent and owner;
-- 'again' if the answer waits for replicas, or nothing; policy after a crash; the largest number of
-- bytes of a record that are shown, or nothing for any number
-- Returns    {now, 'late'}: the claim came after not_after
--            {now, 'found', record}
--            {now, 'large', bytes}: the record exists, with more bytes than the limit
--            {now, 'created', fence, lease_until}

local now = clock()
if now > tonumber(ARGV[1]) then
    return { now, 'late' }
end
local stored = redis.call('GET', KEYS[1])
if stored then
    return show(now, KEYS[1], stored, ARGV[7], ARGV[9])
end
local lease_until = now + ARGV[2]
save(KEYS[1], {
    state = 'R',
    after_crash = ARGV[8],
    token = ARGV[5],
    fence = now,
    version = 1,
    attempt = 1,
    lease_until = lease_until,
    heartbeat_at = now,
    created_at = now,
    updated_at = now,
    retention = tonumber(ARGV[3]),
    asked = ARGV[6],
    note = '',
    outcome = '',
}, ARGV[4])
return { now, 'created', now, lease_until }
