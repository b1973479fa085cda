-- Writes as the owner where token and fence match a running record, otherwise shows the record.
--
-- Key        the record
-- Arguments  token; fence, or nothing to match any; grace in microseconds; the action and its
-- value: 'renew' and the lease in microseconds, 'complete' and the outcome, 'release' and the
-- longest retention of a released record in microseconds, 'abandon' or 'hold' and the note; 'again'
-- if the answer waits for replicas, or nothing; the largest number of bytes of a record that are
-- shown, or nothing for any number
-- Returns    {now, 'unreadable'}: the value is not a record, or has another format
--            {now, 'applied'}
--            {now, 'missing'}
--            {now, 'found', record}
--            {now, 'large', bytes}: the record exists, with more bytes than the limit

local now = clock()
local found, unreadable = load(KEYS[1])
if unreadable then
    return { now, 'unreadable' }
end
if not found then
    return { now, 'missing' }
end
local owned = found.state == 'R' and found.token == ARGV[1]
    and (ARGV[2] == '' or found.fence == tonumber(ARGV[2]))
if not owned then
    return show(now, KEYS[1], found.stored, ARGV[6], ARGV[7])
end
if ARGV[4] == 'renew' then
    found.lease_until = now + ARGV[5]
    found.heartbeat_at = now
elseif ARGV[4] == 'complete' then
    found.state = 'D'
    found.outcome = ARGV[5]
elseif ARGV[4] == 'release' then
    found.state = 'F'
    found.retention = math.min(found.retention, tonumber(ARGV[5]))
elseif ARGV[4] == 'abandon' or ARGV[4] == 'hold' then
    found.lease_until = now
    found.note = note(now, ARGV[5])
    if ARGV[4] == 'hold' then
        found.after_crash = 'H'
    end
else
    error(ARGV[4] .. ' is not known here')
end
found.version = found.version + 1
found.updated_at = now
save(KEYS[1], found, ARGV[3])
return { now, 'applied' }
