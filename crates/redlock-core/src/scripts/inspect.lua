-- What this master shows of some locks, for people: lease and reservation apart from each other, also without a seal.
-- Writes nothing. A lock: KEYS lease, reserved.
local time = redis.call('TIME')
local out = {'ok', time[1], time[2], '0'}
for i = 1, #KEYS / 2 do
  local lease, reserved = KEYS[2 * i - 1], KEYS[2 * i]
  out[i + 4] = {redis.call('GET', lease) or '', redis.call('PTTL', lease),
    redis.call('GET', reserved) or '', redis.call('PTTL', reserved)}
end
return out
