-- A lock: KEYS lease; ARGV stem, name, token, fence mark without its token, delay in milliseconds (of the mark `held`; empty:
-- no pod starts under this lease any more). Only where the lease is mine.
for i = 1, #KEYS - 1 do
  local stem, name, token = ARGV[5 * i - 2], ARGV[5 * i - 1], ARGV[5 * i]
  local mark, delay = ARGV[5 * i + 1], ARGV[5 * i + 2]
  local value = call('GET', KEYS[i + 1])
  if value and string.sub(value, 1, #stem) == stem then
    local written
    if delay ~= '' then
      written = raise(name, token, mark, delay)
    elseif tonumber(call('HGET', KEYS[1], 'closed:' .. name) or '0') < tonumber(token) then
      written = redis.pcall('HSET', KEYS[1], 'closed:' .. name, token)
    end
    if type(written) == 'table' then out[i + 4] = {'error'} else out[i + 4] = 1 end
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
