-- ARGV[3] = own cluster, or empty: an undo, which leaves reservations alone; ARGV[4] = channel.
-- A lock: KEYS lease, reserved; ARGV stem, name to publish, or empty to publish nothing. Deletes nothing that is not mine.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem = ARGV[2 * i + 3]
  local found = call('MGET', lease, reserved)
  if found[1] and string.sub(found[1], 1, #stem) == stem then
    call('DEL', lease)
    if ARGV[3] ~= '' and is_for(found[2], ARGV[3]) then call('DEL', reserved) end
    if ARGV[2 * i + 4] ~= '' then call('PUBLISH', ARGV[4], ARGV[2 * i + 4]) end
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
