-- Puts a master without a seal under quarantine. ARGV[3] = `keep`: a probe of this process stays; or `replace` (init, of
-- a master on which nothing is but a probe): only a probe that begins with ARGV[4] stays, if that is given. A probe of
-- another run, or from before a promotion, is overwritten. Returns the probe that stands.
local probe = redis.call('GET', KEYS[2])
if ARGV[3] == 'replace' then
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'used', time[1], time[2]} end
  if not (probe and ARGV[4] and string.sub(probe, 1, #ARGV[4]) == ARGV[4]) then probe = false end
end
if not probe or string.sub(probe, 1, #process) ~= process then
  probe = ARGV[2]
  redis.call('SET', KEYS[2], probe)
end
return {'ok', time[1], time[2], '0', probe}
