-- What the gate and the seal need to know of this master. Needs no seal, writes nothing. KEYS: meta, probe; or none,
-- of a server in cluster mode, which does not serve them. ARGV[1] = the replication id that a complete reply on this
-- connection has shown, or empty. The same id of a master means the same process: the reply then omits facts that are costly to read and
-- cannot change within one process, or whose change shows in the evicted keys.
local time = redis.call('TIME')
local replication_id, synchronised, _, replicas, role, evicted = history()
local run_id, program, policy, aof, cluster = '', '', '', '', ''
if ARGV[1] == '' or ARGV[1] ~= replication_id then
  local server = redis.call('INFO', 'server')
  run_id = field(server, 'run_id') or ''
  -- What names the program and its version: an own section has KeyDB, and the role of its active replicas.
  program = server .. redis.call('INFO', 'keydb') .. 'role:' .. role .. '\r\n'
  policy = field(redis.call('INFO', 'memory'), 'maxmemory_policy') or ''
  aof = field(redis.call('INFO', 'persistence'), 'aof_enabled') or '0'
  cluster = field(redis.call('INFO', 'cluster'), 'cluster_enabled') or '0'
end
local meta, probe = {}, false
if #KEYS == 2 then
  meta = redis.call('HMGET', KEYS[1], 'seal', 'fingerprint', 'counter', 'evicted', 'replication')
  probe = redis.call('GET', KEYS[2])
end
return {'ok', time[1], time[2], meta[3] or '0',
  run_id, program, role, policy, evicted, aof, cluster,
  meta[1] or '', meta[2] or '', meta[4] or '0', probe or '',
  replicas, replication_id, synchronised, meta[5] or ''}
