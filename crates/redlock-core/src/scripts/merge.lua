local function uid_of(job) return string.match(job or '', '^[^@]*') end
-- The greater of two values of a register: delays by token and then by length; equal slots claimed by different jobs merge to
-- (slot, `nobody`): at most once, never twice.
local function greater(field, own, floor)
  if string.sub(field, 1, 6) == 'delay:' then
    local a, delay_a = string.match(own, '^(%d+)|(%d+)$')
    local b, delay_b = string.match(floor, '^(%d+)|(%d+)$')
    local token_a, token_b = tonumber(a or '0'), tonumber(b or '0')
    local longer = token_a == token_b and tonumber(delay_a or '0') > tonumber(delay_b or '0')
    return (token_a > token_b or longer) and own or floor
  elseif string.sub(field, 1, 5) == 'slot:' then
    local a, by_a = string.match(own, '^(%d+)|(.*)$')
    local b, by_b = string.match(floor, '^(%d+)|(.*)$')
    if not b or tonumber(a or '0') > tonumber(b) then return own end
    local tie = tonumber(a or '0') == tonumber(b) and uid_of(by_a) ~= uid_of(by_b)
    return tie and b .. '|nobody' or floor
  end
  return tonumber(own) and tonumber(own) > tonumber(floor) and own or floor
end
-- Merges pairs of register and value, from ARGV[first] on, into the own registers: each to the greater, with two commands.
local function merge(first)
  local fields, pairs = {}, {}
  for i = first, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
  if #fields == 0 then return end
  local own = redis.call('HMGET', KEYS[1], unpack(fields))
  for i, field in ipairs(fields) do
    local floor = ARGV[first + 2 * i - 1]
    pairs[2 * i - 1], pairs[2 * i] = field, own[i] and greater(field, own[i], floor) or floor
  end
  redis.call('HSET', KEYS[1], unpack(pairs))
end

-- Reports whether the last page that was restored is this one; empty: none is needed. Registers that were deleted since, and
-- those that another process restores meanwhile, are not.
local function is_restored(page)
  return page == '' or redis.call('HGET', KEYS[1], 'restored') == page
end
