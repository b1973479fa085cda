-- The stored form of a record, for the scripts that follow.
--
-- A head of fixed length, with the high byte first: format, state (R running, D done, F released),
-- policy after a crash (H hold, R retry, T transactional), token, fence, version, attempt,
-- lease_until, heartbeat_at, created_at, updated_at, retention, and the lengths of the next two
-- parts. Then follow the intent with the owner, the note and the outcome, which the scripts only
-- copy. Moments and durations are microseconds.
--
-- Format 1 has no policy, which stands for hold, and expires_at instead of the retention.

local HEAD = '>Bc1c1c16I8I8I8I8I8I8I8I8I2I2'
local HEAD_BYTES = 87
local OLD_HEAD = '>Bc1c16I8I8I8I8I8I8I8I8I2I2'
local OLD_HEAD_BYTES = 86

-- The clock of this server, the only one that counts.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000000 + time[2]
end

-- The record that is stored under a key, nil if there is none; and whether the value cannot be
-- read.
local function load(key)
    local stored = redis.call('GET', key)
    if not stored then
        return nil, false
    end
    local format = string.byte(stored)
    local head_bytes = format == 1 and OLD_HEAD_BYTES or HEAD_BYTES
    if format ~= 1 and format ~= 2 or #stored < head_bytes then
        return nil, true
    end
    local r = { stored = stored }
    local asked_bytes, note_bytes
    if format == 1 then
        local expires_at
        format, r.state, r.token, r.fence, r.version, r.attempt, r.lease_until, r.heartbeat_at, r.created_at, r.updated_at,
            expires_at, asked_bytes, note_bytes = struct.unpack(OLD_HEAD, stored)
        r.after_crash = 'H'
        r.retention = math.max(0, expires_at - (r.state == 'R' and r.created_at or r.updated_at))
    else
        format, r.state, r.after_crash, r.token, r.fence, r.version, r.attempt, r.lease_until, r.heartbeat_at, r.created_at,
            r.updated_at, r.retention, asked_bytes, note_bytes = struct.unpack(HEAD, stored)
    end
    local note_at = head_bytes + asked_bytes
    if #stored < note_at + note_bytes then
        return nil, true
    end
    r.asked = string.sub(stored, head_bytes + 1, note_at)
    r.note = string.sub(stored, note_at + 1, note_at + note_bytes)
    r.outcome = string.sub(stored, note_at + note_bytes + 1)
    return r, false
end

-- A note with the present time.
local function note(now, text)
    return struct.pack('>I8', now) .. text
end

-- Stores a record under a key, and returns its stored form. Redis removes it by itself when it has
-- been expired for the time `grace`: retention begins with the write that settles the record, or
-- when the lease of a lost attempt is over. An attempt under hold stays until it is settled.
local function save(key, r, grace)
    local stored = struct.pack(HEAD, 2, r.state, r.after_crash, r.token, r.fence, r.version, r.attempt, r.lease_until,
        r.heartbeat_at, r.created_at, r.updated_at, r.retention, #r.asked, #r.note) .. r.asked .. r.note .. r.outcome
    if r.state == 'R' and r.after_crash == 'H' then
        redis.call('SET', key, stored)
    else
        local begins = r.state == 'R' and r.lease_until or r.updated_at
        local last = math.ceil((begins + r.retention + grace) / 1000)
        redis.call('SET', key, stored, 'PXAT', string.format('%.0f', last))
    end
    return stored
end

-- Shows a record unchanged, or only its size if that is over the limit. If the answer waits for
-- replicas, the first byte of a record that another connection has written is written once more:
-- from Redis 7.2 on, WAIT waits only for writes of its own connection. The second write changes
-- neither the record nor its expiry.
--
-- An attempt in format 1 that runs or is held still has the TTL that the older version gave it. It
-- is written in the present format, and stays from then on.
local function show(now, key, stored, again, limit)
    if string.sub(stored, 1, 2) == '\1R' then
        local old = load(key)
        stored = old and save(key, old) or stored
    end
    if limit ~= '' and #stored > tonumber(limit) then
        return { now, 'large', #stored }
    end
    if again == 'again' then
        redis.call('SETRANGE', key, 0, string.sub(stored, 1, 1))
    end
    return { now, 'found', stored }
end
