-- Raises held, fence mark and delay of a lease, in one command: none of them is on record without the others. `mark` is
-- without its token. An equal or greater value stays; under one token the delay only rises.
local function raise(name, token, mark, delay)
  local held, marked, declared = 'held:' .. name, 'slot:' .. name .. '/!mark', 'delay:' .. name
  local found = call('HMGET', KEYS[1], held, marked, declared)
  local mine, pairs = tonumber(token), {}
  local function put(field, value) pairs[#pairs + 1] = field; pairs[#pairs + 1] = value end
  if tonumber(found[1] or '0') < mine then put(held, token) end
  if tonumber(string.match(found[2] or '', '^(%d+)|') or '0') < mine then put(marked, token .. '|' .. mark) end
  local last, before = string.match(found[3] or '', '^(%d+)|(%d+)$')
  last = tonumber(last or '0')
  if last < mine or (last == mine and tonumber(before) < tonumber(delay)) then put(declared, token .. '|' .. delay) end
  if #pairs > 0 then return redis.pcall('HSET', KEYS[1], unpack(pairs)) end
end

-- Whether a later lease was marked here: this one is over, and its release would delete what belongs to the later one.
local function is_marked_later(name, token)
  local marked = call('HGET', KEYS[1], 'slot:' .. name .. '/!mark')
  return tonumber(string.match(marked or '', '^(%d+)|') or '0') > tonumber(token)
end
