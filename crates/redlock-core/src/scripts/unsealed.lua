-- Begins the scripts that write to a master without a seal. KEYS meta, probe; ARGV[1] = not_after, microseconds of
-- this master's TIME; ARGV[2] = a probe, `<run_id>|<replication id>|<uuid>` or `<run_id>|<replication id>|init|…`. Another
-- run, a master that was promoted since, one that is sealed, by whomever, or retired, or a script that comes too late: nothing
-- is written.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local process = run_id .. '|' .. current .. '|'
if string.sub(ARGV[2], 1, #process) ~= process then return {'restarted', time[1], time[2]} end
local found = redis.call('HMGET', KEYS[1], 'seal', 'fingerprint', 'replication')
if found[1] == run_id and not has_ended(found[3]) then return {'sealed', time[1], time[2]} end
if found[2] and string.sub(found[2], 1, 8) == 'retired:' then return {'retired', time[1], time[2]} end
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return {'late', time[1], time[2]} end
