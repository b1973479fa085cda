-- Shows a record as it is.
--
-- Key        the record
-- Arguments  'again' if replicas are waited for, or nothing
-- Returns    {now, 'missing'}
--            {now, 'found', record}

local now = clock()
local stored = redis.call('GET', KEYS[1])
if not stored then
    return { now, 'missing' }
end
return show(now, KEYS[1], stored, ARGV[1])
