-- The run_id, then everything under meta: registers, seal and fingerprint of one moment. Needs no seal, since after a
-- total loss all that is known counts; writes nothing. KEYS meta.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local out = {'ok', time[1], time[2], redis.call('HGET', KEYS[1], 'counter') or '0', run_id}
for i, text in ipairs(redis.call('HGETALL', KEYS[1])) do out[i + 5] = text end
return out
