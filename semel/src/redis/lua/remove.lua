-- Removes a record that still has the expected token and version.
--
-- Key        the record
-- Arguments  expected token, expected version
-- Returns    {now, 'changed'}: the record is another, or gone
--            {now, 'applied'}

local now = clock()
local found = load(KEYS[1])
if not found or found.token ~= ARGV[1] or found.version ~= tonumber(ARGV[2]) then
    return { now, 'changed' }
end
redis.call('DEL', KEYS[1])
return { now, 'applied' }
