-- A lock: KEYS lease; ARGV stem, name, token, delay in milliseconds (of the mark `held`; empty: the mark `clean`). `held`
-- and `delay` only where the lease is mine; under one token the delay only rises. `clean` also elsewhere: the end is
-- confirmed, and the next win may read it from a master that this lease never reached. Its vote needs the lease.
for i = 1, #KEYS - 1 do
  local stem, name, token, delay = ARGV[4 * i - 1], ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2]
  local value = call('GET', KEYS[i + 1])
  local is_mine = value and string.sub(value, 1, #stem) == stem
  local field = (delay == '' and 'clean:' or 'held:') .. name
  if (is_mine or delay == '') and tonumber(call('HGET', KEYS[1], field) or '0') < tonumber(token) then
    call('HSET', KEYS[1], field, token)
  end
  if is_mine and delay ~= '' then
    local declared, before = string.match(call('HGET', KEYS[1], 'delay:' .. name) or '', '^(%d+)|(%d+)$')
    local last, mine = tonumber(declared or '0'), tonumber(token)
    if last < mine or (last == mine and tonumber(before) < tonumber(delay)) then
      call('HSET', KEYS[1], 'delay:' .. name, token .. '|' .. delay)
    end
  end
  out[i + 4] = is_mine and 1 or 0
end
out[4] = counter
return out
