-- The end of a trial's keys: ARGV[1] milliseconds from now; 0 is at once.
local time = redis.call('TIME')
for _, key in ipairs(KEYS) do
  if ARGV[1] == '0' then redis.call('DEL', key) else redis.call('PEXPIRE', key, ARGV[1]) end
end
return {'ok', time[1], time[2]}
