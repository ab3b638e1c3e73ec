-- Appends a line to a ledger, unless a writer with a greater fencing token has appended before.
-- KEYS[1] = the ledger; ARGV = token, line. The greatest token stands beside the ledger, in `KEYS[1]:token`.
-- Numbers in Lua are exact to 2^53; redlock's tokens count up from the milliseconds since 1970, and stay far below.
local fence = KEYS[1] .. ':token'
local token, seen = tonumber(ARGV[1]), tonumber(redis.call('GET', fence) or '0')
if not token then
  return redis.error_reply('FENCED no token was given')
end
if token < seen then
  return redis.error_reply('FENCED token ' .. ARGV[1] .. ' is behind ' .. redis.call('GET', fence))
end
redis.call('SET', fence, ARGV[1])
return redis.call('RPUSH', KEYS[1], ARGV[1] .. ' ' .. ARGV[2])
