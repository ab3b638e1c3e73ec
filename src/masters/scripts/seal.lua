-- Gives a master its vote back. KEYS meta, probe; ARGV probe text (begins with the run_id), fingerprint, then pairs
-- of register and value: the floor. Own registers and floor merge to the greater; equal slots claimed by different
-- jobs merge to (slot, nobody): at most once, never twice.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if string.sub(ARGV[1], 1, #run_id + 1) ~= run_id .. '|' then return {'restarted', time[1], time[2]} end
if redis.call('HGET', KEYS[1], 'seal') == run_id then return {'sealed', time[1], time[2]} end
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return {'probe', time[1], time[2]} end
for i = 3, #ARGV, 2 do
  local field, floor = ARGV[i], ARGV[i + 1]
  local own = redis.call('HGET', KEYS[1], field)
  local value = floor
  if own and string.sub(field, 1, 5) == 'slot:' then
    local a, by_a = string.match(own, '^(%d+)|(.*)$')
    local b, by_b = string.match(floor, '^(%d+)|(.*)$')
    if not b or tonumber(a or '0') > tonumber(b) then value = own
    elseif tonumber(a or '0') == tonumber(b) and by_a ~= by_b then value = b .. '|nobody' end
  elseif own and tonumber(own) and tonumber(own) > tonumber(floor) then
    value = own
  end
  redis.call('HSET', KEYS[1], field, value)
end
local evicted = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') or '0'
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[2], 'evicted', evicted, 'seal', run_id)
redis.call('DEL', KEYS[2])
return {'ok', time[1], time[2], redis.call('HGET', KEYS[1], 'counter') or '0'}
