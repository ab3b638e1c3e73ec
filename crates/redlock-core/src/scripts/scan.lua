-- One page of the keys on this master, for init. ARGV cursor, pattern, how many to scan. Writes nothing.
local time = redis.call('TIME')
local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local out = {'ok', time[1], time[2], '0', page[1]}
for i, key in ipairs(page[2]) do out[i + 5] = key end
return out
