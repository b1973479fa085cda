-- Remembers that a key is done, or was forgotten, for the durable store behind this one; does
-- nothing if a newer entry is remembered.
--
-- An entry begins with a format, the fence and a letter (A done, Z forgotten); of two entries with
-- the same fence, the forgotten one is the newer.
--
-- Key        the entry
-- Arguments  not_after; the time in milliseconds for which it is kept; the entry
-- Returns    {now, 'late'}: the entry came after not_after
--            {now, 'older'}: a newer entry is remembered
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
