-- ARGV[3] = floor, ARGV[4] = own cluster. A lock: KEYS lease, reserved; ARGV stem, milliseconds, name.
local floor = tonumber(ARGV[3])
if counter < floor then counter = floor end
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem, name = ARGV[3 * i + 2], ARGV[3 * i + 4]
  local value, hold = redis.call('GET', lease), redis.call('GET', reserved)
  if hold == ARGV[4] then hold = false end
  local number
  if mine(value, stem) then
    number = string.sub(value, #stem + 1)
  elseif value or hold then
    out[i + 4] = obstacle(lease, reserved, value, hold)
  else
    counter = counter + 1
    number = text(counter)
    redis.call('HSET', KEYS[1], 'counter', number)
    redis.call('SET', lease, stem .. number, 'PX', ARGV[3 * i + 3])
  end
  if number then
    local marks = redis.call('HMGET', KEYS[1], 'held:' .. name, 'clean:' .. name, 'heldFloor')
    local held = math.max(tonumber(marks[1] or '0'), tonumber(marks[3] or '0'))
    out[i + 4] = {'granted', number, text(held), marks[2] or '0'}
  end
end
out[4] = text(counter)
return out
