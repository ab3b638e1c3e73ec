-- ARGV[3] = longest lease, milliseconds. A lock: KEYS lease, reserved. Deletes no lease: its holder is refused at
-- its next renewal, and no candidate is granted the lock before the reservation ends. A longer reservation is not shortened.
for i = 1, (#KEYS - 1) / 2 do
  local reserved = KEYS[2 * i + 1]
  call('SET', reserved, 'nobody', 'PX', math.max(tonumber(ARGV[3]), remaining(reserved)))
  out[i + 4] = 1
end
out[4] = counter
return out
