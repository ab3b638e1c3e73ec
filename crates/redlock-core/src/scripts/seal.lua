-- Gives a master its vote back, if it still carries the probe ARGV[2]. ARGV[3] = fingerprint and quorum id, then pairs of register
-- and value: the floor. Own registers and floor merge to the greater, delays by token and then by length; equal slots claimed by different jobs merge to
-- (slot, `nobody`): at most once, never twice. The seal comes last: a master that runs out of memory half-way has no vote.
local function uid_of(job) return string.match(job or '', '^[^@]*') end
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'probe', time[1], time[2]} end
-- The synchronisations that are stored below must not include one of a replica that is still attached.
local replication_id, synchronised, lasting, replicas, _, evicted = history()
if tonumber(replicas) ~= 0 then return {'replicas', time[1], time[2]} end
for i = 4, #ARGV, 2 do
  local field, floor = ARGV[i], ARGV[i + 1]
  local own = redis.call('HGET', KEYS[1], field)
  local value = floor
  if own and string.sub(field, 1, 6) == 'delay:' then
    local a, delay_a = string.match(own, '^(%d+)|(%d+)$')
    local b, delay_b = string.match(floor, '^(%d+)|(%d+)$')
    local token_a, token_b = tonumber(a or '0'), tonumber(b or '0')
    if token_a > token_b or (token_a == token_b and tonumber(delay_a or '0') > tonumber(delay_b or '0')) then value = own end
  elseif own and string.sub(field, 1, 5) == 'slot:' then
    local a, by_a = string.match(own, '^(%d+)|(.*)$')
    local b, by_b = string.match(floor, '^(%d+)|(.*)$')
    if not b or tonumber(a or '0') > tonumber(b) then value = own
    elseif tonumber(a or '0') == tonumber(b) and uid_of(by_a) ~= uid_of(by_b) then value = b .. '|nobody' end
  elseif own and tonumber(own) and tonumber(own) > tonumber(floor) then
    value = own
  end
  redis.call('HSET', KEYS[1], field, value)
end
-- An id that cannot be distinguished from another one proves nothing: the scripts compare the run_id then.
local distinct = #replication_id == 40 and string.find(replication_id, '^%x+$') and not string.find(replication_id, '^0+$')
if not lasting or not distinct then replication_id = '' end
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[3], 'evicted', evicted,
  'replication', replication_id .. '|' .. synchronised, 'seal', run_id)
redis.call('DEL', KEYS[2])
return {'ok', time[1], time[2], redis.call('HGET', KEYS[1], 'counter') or '0'}
