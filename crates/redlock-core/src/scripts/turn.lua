-- Lets one process at a time read the registers of other masters in order to seal this one. KEYS[3] = the turn; ARGV[3] = the
-- process, ARGV[4] = milliseconds. The own turn is extended. Returns the process whose turn is under way. A seal does not need
-- the turn.
local turn = redis.call('GET', KEYS[3]) or ARGV[3]
if turn == ARGV[3] then redis.call('SET', KEYS[3], turn, 'PX', ARGV[4]) end
return {'ok', time[1], time[2], '0', turn}
