-- What the gate and the seal need to know of this master. Needs no seal, writes nothing. KEYS: meta, probe; or none,
-- of a server in cluster mode, which does not serve them.
local time = redis.call('TIME')
local facts = {}
for _, section in ipairs({'server', 'replication', 'memory', 'stats', 'persistence', 'cluster'}) do
  local info = redis.call('INFO', section)
  for _, name in ipairs({'run_id', 'redis_version', 'role', 'maxmemory_policy', 'evicted_keys', 'aof_enabled',
                         'cluster_enabled'}) do
    facts[name] = facts[name] or string.match(info, '[\r\n]' .. name .. ':([^\r\n]*)')
  end
end
local meta, probe = {}, false
if #KEYS == 2 then
  meta = redis.call('HMGET', KEYS[1], 'seal', 'fingerprint', 'counter', 'evicted', 'replication')
  probe = redis.call('GET', KEYS[2])
end
local replication_id, synchronised, _, replicas = history()
return {'ok', time[1], time[2], meta[3] or '0',
  facts.run_id or '', facts.redis_version or '', facts.role or '', facts.maxmemory_policy or '',
  facts.evicted_keys or '0', facts.aof_enabled or '0', facts.cluster_enabled or '0',
  meta[1] or '', meta[2] or '', meta[4] or '0', probe or '',
  replicas, replication_id, synchronised, meta[5] or ''}
