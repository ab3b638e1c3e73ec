-- Gives a master its vote back, if it still carries the probe ARGV[2]. ARGV[3] = fingerprint and quorum id, ARGV[4] = the last
-- page that was restored, then pairs of register and value: the rest of the floor. The seal comes last: a master that runs out
-- of memory half-way has no vote.
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'probe', time[1], time[2]} end
if not is_restored(ARGV[4]) then return {'disturbed', time[1], time[2]} end
-- The synchronisations that are stored below must not include one of a replica that is still attached.
local replication_id, synchronised, lasting, replicas, _, evicted = history()
if tonumber(replicas) ~= 0 then return {'replicas', time[1], time[2]} end
-- An id that cannot be distinguished from another one proves nothing.
local distinct = #replication_id == 40 and string.find(replication_id, '^%x+$') and not string.find(replication_id, '^0+$')
if not distinct then return {'replication', time[1], time[2]} end
merge(5)
local ends = lasting and '' or '|backlog'
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[3], 'evicted', evicted,
  'replication', replication_id .. '|' .. synchronised .. ends, 'seal', run_id)
redis.call('DEL', KEYS[2])
return {'ok', time[1], time[2], redis.call('HGET', KEYS[1], 'counter') or '0'}
