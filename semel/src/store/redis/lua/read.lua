-- Shows a record unchanged.
--
-- Key        the record
-- Arguments  'again' if the answer waits for replicas, or nothing; the largest number of bytes of a
--            record that are shown, or nothing for any number
-- Returns    {now, 'missing'}
--            {now, 'found', record}
--            {now, 'large', bytes}: the record exists, with more bytes than the limit

local now = clock()
local stored = redis.call('GET', KEYS[1])
if not stored then
    return { now, 'missing' }
end
return show(now, KEYS[1], stored, ARGV[1], ARGV[2])
