-- ARGV[3] = floor, ARGV[4] = own cluster. A lock: KEYS lease, reserved; ARGV stem, milliseconds, name.
local floor = tonumber(ARGV[3])
if counter < floor then counter = floor end
local held_floor = tonumber(meta[4] or '0')
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem = ARGV[3 * i + 2]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  if hold == ARGV[4] then hold = false end
  local number
  if value and string.sub(value, 1, #stem) == stem then
    number = string.sub(value, #stem + 1)
  elseif value or hold then
    out[i + 4] = obstacle(lease, reserved, value, hold)
  else
    counter = counter + 1
    number = string.format('%.0f', counter)
    call('HSET', KEYS[1], 'counter', number)
    call('SET', lease, stem .. number, 'PX', ARGV[3 * i + 3])
  end
  if number then
    local held, clean = meta[2 * i + 3], meta[2 * i + 4]
    out[i + 4] = {'granted', number, math.max(tonumber(held or '0'), held_floor), clean or '0'}
  end
end
out[4] = counter
return out
