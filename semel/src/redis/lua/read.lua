-- Shows a record as it is.
--
-- Key        the record
-- Returns    {now, 'missing'}
--            {now, 'found', record}

local now = clock()
local stored = redis.call('GET', KEYS[1])
if not stored then
    return { now, 'missing' }
end
return { now, 'found', stored }
