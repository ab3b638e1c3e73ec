-- ARGV[3] = longest lease, milliseconds. A lock: KEYS lease, reserved. Deletes no lease: its holder is refused at
-- its next renewal, and nobody enters before the reservation ends.
for i = 1, (#KEYS - 1) / 2 do
  call('SET', KEYS[2 * i + 1], 'nobody', 'PX', ARGV[3])
  out[i + 4] = 1
end
out[4] = counter
return out
