-- What this master shows of some locks, for people: lease and reservation apart from each other, also without a seal.
-- Writes nothing. Of a value that is longer than every lease, its beginning is enough.
-- A lock: KEYS lease, reserved.
local time = redis.call('TIME')
local out = {'ok', time[1], time[2], '0'}
for i = 1, #KEYS / 2 do
  local lease, reserved = KEYS[2 * i - 1], KEYS[2 * i]
  out[i + 4] = {string.sub(redis.call('GET', lease) or '', 1, 4096), redis.call('PTTL', lease),
    string.sub(redis.call('GET', reserved) or '', 1, 4096), redis.call('PTTL', reserved)}
end
return out
