-- Writes a whole record over one that still has the expected token and version.
--
-- Key        the record
-- Arguments  expected token, expected version; not_after, or nothing; grace in microseconds; of the
-- new record: state, token, attempt, intent and owner, outcome; lease and retention in
-- microseconds; 'fresh' for a new life of the key, or nothing; a note, or nothing to keep the
-- existing one; policy after a crash
-- Returns    {now, 'unreadable'}: the value is not a record, or has another format
--            {now, 'changed'}: the record differs, or is gone
--            {now, 'late'}: the replace came after not_after
--            {now, 'applied', fence, lease_until}

local now = clock()
local found, unreadable = load(KEYS[1])
if unreadable then
    return { now, 'unreadable' }
end
if not found or found.token ~= ARGV[1] or found.version ~= tonumber(ARGV[2]) then
    return { now, 'changed' }
end
if ARGV[3] ~= '' and now > tonumber(ARGV[3]) then
    return { now, 'late' }
end
local fresh = ARGV[12] == 'fresh'
local kept_note = fresh and '' or found.note
local fence = math.max(now, found.fence + 1)
local lease_until = now + ARGV[10]
save(KEYS[1], {
    state = ARGV[5],
    after_crash = ARGV[14],
    token = ARGV[6],
    fence = fence,
    version = found.version + 1,
    attempt = tonumber(ARGV[7]),
    lease_until = lease_until,
    heartbeat_at = now,
    created_at = fresh and now or found.created_at,
    updated_at = now,
    retention = tonumber(ARGV[11]),
    asked = ARGV[8],
    note = ARGV[13] ~= '' and note(now, ARGV[13]) or kept_note,
    outcome = ARGV[9],
}, ARGV[4])
return { now, 'applied', fence, lease_until }
