-- Remembers of a key, for the durable store behind this one, that it is done or was forgotten; unless something newer
-- is remembered.
--
-- What is remembered begins with a format, the fence and a letter (A done, Z forgotten); of two with the same fence the
-- forgotten one is the newer.
--
-- Key        what is remembered
-- Arguments  not_after; for how long it is kept in milliseconds; what is remembered
-- Returns    {now, 'late'}: it came after not_after
--            {now, 'older'}: something newer is remembered
--            {now, 'applied'}

local now = clock()
if now > tonumber(ARGV[1]) then
    return { now, 'late' }
end
local HEAD = '>BI8B'
local HEAD_BYTES = 10
local there = redis.call('GETRANGE', KEYS[1], 0, HEAD_BYTES - 1)
if #there == HEAD_BYTES then
    local there_format, there_fence, there_letter = struct.unpack(HEAD, there)
    local format, fence, letter = struct.unpack(HEAD, ARGV[3])
    local newer = there_fence > fence or there_fence == fence and there_letter > letter
    if there_format == format and newer then
        return { now, 'older' }
    end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
return { now, 'applied' }
