-- Puts a master without a seal under quarantine. KEYS meta, probe; ARGV expected run_id, probe text
-- `<run_id>|<kind>|<uuid>`, `keep` or `replace`. A probe of another run_id is overwritten; one of this run_id stays,
-- unless `replace` (init, on a master that is new).
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if run_id ~= ARGV[1] then return {'restarted', time[1], time[2]} end
if redis.call('HGET', KEYS[1], 'seal') == run_id then return {'sealed', time[1], time[2]} end
if ARGV[3] == 'replace' and redis.call('EXISTS', KEYS[1]) == 1 then return {'used', time[1], time[2]} end
local probe = redis.call('GET', KEYS[2])
if ARGV[3] == 'replace' or not probe or string.sub(probe, 1, #run_id + 1) ~= run_id .. '|' then
  redis.call('SET', KEYS[2], ARGV[2])
  probe = ARGV[2]
end
return {'ok', time[1], time[2], '0', probe}
