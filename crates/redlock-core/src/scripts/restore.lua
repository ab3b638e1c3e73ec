-- Merges one page of the floor into the registers of a master that still carries the probe ARGV[2]. ARGV[3] = the page before,
-- ARGV[4] = this page, then pairs of register and value. The master has no vote before the seal, which comes last.
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'probe', time[1], time[2]} end
if not is_restored(ARGV[3]) then return {'disturbed', time[1], time[2]} end
merge(5)
redis.call('HSET', KEYS[1], 'restored', ARGV[4])
return {'ok', time[1], time[2], redis.call('HGET', KEYS[1], 'counter') or '0'}
