-- Shows a record as it is.
--
-- Key        the record
-- Arguments  'again' if replicas are waited for, or nothing; how many bytes of a record are shown, or nothing for any number
-- Returns    {now, 'missing'}
--            {now, 'found', record}
--            {now, 'large', bytes}: the same, of more bytes than that

local now = clock()
local stored = redis.call('GET', KEYS[1])
if not stored then
    return { now, 'missing' }
end
return show(now, KEYS[1], stored, ARGV[1], ARGV[2])
