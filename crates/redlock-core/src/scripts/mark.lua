-- A lock: KEYS lease; ARGV stem, name, token, delay in milliseconds (of the mark `held`; empty: the mark `clean`). Only
-- where the lease is mine. Under one token the delay only rises.
for i = 1, #KEYS - 1 do
  local stem, name, token, delay = ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local value = call('GET', KEYS[i + 1])
  if value and string.sub(value, 1, #stem) == stem then
    local field = (delay == '' and 'clean:' or 'held:') .. name
    if tonumber(call('HGET', KEYS[1], field) or '0') < tonumber(token) then
      call('HSET', KEYS[1], field, token)
    end
    if delay ~= '' then
      local declared, before = string.match(call('HGET', KEYS[1], 'delay:' .. name) or '', '^(%d+)|(%d+)$')
      local last, mine = tonumber(declared or '0'), tonumber(token)
      if last < mine or (last == mine and tonumber(before) < tonumber(delay)) then
        call('HSET', KEYS[1], 'delay:' .. name, token .. '|' .. delay)
      end
    end
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
