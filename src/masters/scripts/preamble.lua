-- Begins every writing script. KEYS[1] = meta; ARGV[1] = not_after, microseconds of this master's TIME;
-- ARGV[2] = fingerprint. A master that may not vote, or that runs this too late, writes nothing.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local meta = redis.call('HMGET', KEYS[1], 'seal', 'fingerprint', 'counter')
if meta[1] ~= run_id then return {'unsealed', time[1], time[2]} end
if meta[2] ~= ARGV[2] then return {'foreign', time[1], time[2]} end
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return {'late', time[1], time[2]} end
local counter = tonumber(meta[3] or '0')
local out = {'ok', time[1], time[2], '0'}
local function text(number) return string.format('%.0f', number) end
local function mine(value, stem) return value and string.sub(value, 1, #stem) == stem end
-- What stands in the way: the lease first, until both it and the reservation are gone.
local function obstacle(lease, reserved, value, hold)
  local left = -2
  if value then left = redis.call('PTTL', lease) end
  if hold and left ~= -1 then
    local reserved_left = redis.call('PTTL', reserved)
    if reserved_left == -1 or reserved_left > left then left = reserved_left end
  end
  if value then return {'lease', value, left} end
  return {'reserved', hold, left}
end
