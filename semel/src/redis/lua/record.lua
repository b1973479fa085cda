-- The stored form of a record, for the scripts that follow.
--
-- A head of fixed length, with the high byte first: format, state (R running, D done, F released), token, fence, version,
-- attempt, lease_until, heartbeat_at, created_at, updated_at, expires_at, and the lengths of the next two parts. Then
-- what was asked, the note and the outcome, which are only copied here. Moments are microseconds.

local HEAD = '>Bc1c16I8I8I8I8I8I8I8I8I2I2'
local HEAD_BYTES = 86

-- The clock of this server: the only one that counts.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- The record that is stored under a key, nil if there is none; and whether there is something that cannot be read.
local function load(key)
    local stored = redis.call('GET', key)
    if not stored then
        return nil, false
    end
    local format = string.byte(stored)
    if format ~= 1 or #stored < HEAD_BYTES then
        return nil, true
    end
    local r = { stored = stored }
    local asked_bytes, note_bytes
    format, r.state, r.token, r.fence, r.version, r.attempt, r.lease_until, r.heartbeat_at, r.created_at, r.updated_at,
        r.expires_at, asked_bytes, note_bytes = struct.unpack(HEAD, stored)
    local note_at = HEAD_BYTES + asked_bytes
    if #stored < note_at + note_bytes then
        return nil, true
    end
    r.asked = string.sub(stored, HEAD_BYTES + 1, note_at)
    r.note = string.sub(stored, note_at + 1, note_at + note_bytes)
    r.outcome = string.sub(stored, note_at + note_bytes + 1)
    return r, false
end

-- Shows a record as it is; again if replicas are waited for. From Redis 7.2 on, WAIT waits only for what its own
-- connection has written: what another one wrote is then written once more, by the end that it has already.
local function show(now, key, stored, again)
    if again == 'again' then
        local last = redis.call('PEXPIRETIME', key)
        if last > 0 then
            redis.call('PEXPIREAT', key, string.format('%.0f', last))
        end
    end
    return { now, 'found', stored }
end

-- A note of this moment.
local function note(now, text)
    return struct.pack('>I8', now) .. text
end

-- Stores a record under a key. Redis removes it by itself when both retention and lease have been over for this long.
local function save(key, r, grace)
    local head = struct.pack(HEAD, 1, r.state, r.token, r.fence, r.version, r.attempt, r.lease_until, r.heartbeat_at,
        r.created_at, r.updated_at, r.expires_at, #r.asked, #r.note)
    local last = math.ceil((math.max(r.expires_at, r.lease_until) + grace) / 1000)
    redis.call('SET', key, head .. r.asked .. r.note .. r.outcome, 'PXAT', string.format('%.0f', last))
end

