local function uid_of(job) return string.match(job or '', '^[^@]*') end
-- Merges pairs of register and value, from ARGV[first] on, into the own registers: each to the greater, delays by token and
-- then by length; equal slots claimed by different jobs merge to (slot, `nobody`): at most once, never twice.
local function merge(first)
  for i = first, #ARGV, 2 do
    local field, floor = ARGV[i], ARGV[i + 1]
    local own = redis.call('HGET', KEYS[1], field)
    local value = floor
    if own and string.sub(field, 1, 6) == 'delay:' then
      local a, delay_a = string.match(own, '^(%d+)|(%d+)$')
      local b, delay_b = string.match(floor, '^(%d+)|(%d+)$')
      local token_a, token_b = tonumber(a or '0'), tonumber(b or '0')
      if token_a > token_b or (token_a == token_b and tonumber(delay_a or '0') > tonumber(delay_b or '0')) then value = own end
    elseif own and string.sub(field, 1, 5) == 'slot:' then
      local a, by_a = string.match(own, '^(%d+)|(.*)$')
      local b, by_b = string.match(floor, '^(%d+)|(.*)$')
      if not b or tonumber(a or '0') > tonumber(b) then value = own
      elseif tonumber(a or '0') == tonumber(b) and uid_of(by_a) ~= uid_of(by_b) then value = b .. '|nobody' end
    elseif own and tonumber(own) and tonumber(own) > tonumber(floor) then
      value = own
    end
    redis.call('HSET', KEYS[1], field, value)
  end
end

-- Reports whether the last page that was restored is this one; empty: none is needed. Registers that were deleted since, and
-- those that another process restores meanwhile, are not.
local function is_restored(page)
  return page == '' or redis.call('HGET', KEYS[1], 'restored') == page
end
