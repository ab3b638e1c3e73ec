-- Reads, never writes. ARGV[3] = own cluster. A lock: KEYS lease, reserved.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  local ours = is_for(hold, ARGV[3])
  if value or (hold and not ours) then
    if ours then hold = false end
    out[i + 4] = obstacle(lease, reserved, value, hold)
  elseif hold then
    out[i + 4] = {'ours'}
  else
    out[i + 4] = 1
  end
end
out[4] = counter
return out
