-- ARGV[3] = floor, ARGV[4] = own cluster. A lock: KEYS lease, reserved; ARGV stem, milliseconds, name.
-- The i-th lock is granted base + i, whether or not those before it were granted: so masters that refuse different
-- locks of a chunk still give the same numbers. All of them are taken from the counter before the first grant.
local locks = (#KEYS - 1) / 2
local base = math.max(counter, tonumber(ARGV[3]))
local taken = false
local held_floor = tonumber(meta[5] or '0')
for i = 1, locks do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem = ARGV[3 * i + 2]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  if is_for(hold, ARGV[4]) then hold = false end
  local number
  if value and string.sub(value, 1, #stem) == stem then
    number = string.sub(value, #stem + 1)
  elseif value or hold then
    out[i + 4] = obstacle(lease, reserved, value, hold)
  else
    if not taken then
      counter = base + locks
      call('HSET', KEYS[1], 'counter', string.format('%.0f', counter))
      taken = true
    end
    number = string.format('%.0f', base + i)
    call('SET', lease, stem .. number, 'PX', ARGV[3 * i + 3])
  end
  if number then
