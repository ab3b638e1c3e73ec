-- Takes a server its vote. KEYS meta, probe; ARGV[1] = not_after, microseconds of this master's TIME; ARGV[2] = the
-- run_id under which it was inspected; ARGV[3] = own fingerprint and quorum id. ARGV[4] = the value that replaces the fingerprint, so
-- that no operator gives it a seal again; or empty: it only loses its seal, and waits for a new one.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if run_id ~= ARGV[2] then return {'restarted', time[1], time[2]} end
local meta = redis.call('HMGET', KEYS[1], 'seal', 'fingerprint', 'replication')
if meta[2] and string.sub(meta[2], 1, 8) == 'retired:' then return {'retired', time[1], time[2]} end
if meta[1] == run_id and not has_ended(meta[3]) and meta[2] ~= ARGV[3] then return {'foreign', time[1], time[2]} end
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return {'late', time[1], time[2]} end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'seal', '', 'fingerprint', ARGV[4])
elseif meta[1] then
  redis.call('HSET', KEYS[1], 'seal', '')
end
redis.call('DEL', KEYS[2])
return {'ok', time[1], time[2], '0'}
