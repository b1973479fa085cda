-- Removes a record that still has the expected token and version.
--
-- Key        the record
-- Arguments  expected token, expected version
-- Returns    {now, 'unreadable'}: the value is not a record, or has another format
--            {now, 'changed'}: the record differs, or is gone
--            {now, 'applied'}

local now = clock()
local found, unreadable = load(KEYS[1])
if unreadable then
    return { now, 'unreadable' }
end
if not found or found.token ~= ARGV[1] or found.version ~= tonumber(ARGV[2]) then
    return { now, 'changed' }
end
redis.call('DEL', KEYS[1])
return { now, 'applied' }
