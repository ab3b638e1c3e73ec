-- Merges one page of the floor into the registers of a master that still carries the probe ARGV[2]. KEYS[3] = the turn; ARGV[3] =
-- the page before, ARGV[4] = this page, ARGV[5] = the process, ARGV[6] = milliseconds of the turn, then pairs of register and
-- value. The master has no vote before the seal, which comes last.
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'probe', time[1], time[2]} end
-- Two processes would begin anew for ever, each disturbed by the other.
local turn = redis.call('GET', KEYS[3])
if turn and turn ~= ARGV[5] then return {'turn', time[1], time[2]} end
if not is_restored(ARGV[3]) then return {'disturbed', time[1], time[2]} end
redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[6])
merge(7)
redis.call('HSET', KEYS[1], 'restored', ARGV[4])
return {'ok', time[1], time[2], redis.call('HGET', KEYS[1], 'counter') or '0'}
