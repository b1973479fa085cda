-- Writes a secret if there is none, or if the stored one is exactly the expected one.
--
-- Key        the secret
-- Arguments  the expected secret, empty if none is expected; the new secret
-- Returns    {now, 'kept', secret}: the secret that is stored afterwards

local kept = redis.call('GET', KEYS[1])
if not kept or kept == ARGV[1] then
    redis.call('SET', KEYS[1], ARGV[2])
    kept = ARGV[2]
end
return { clock(), 'kept', kept }
