-- Reads, never writes: what the agent of a node needs to know of a lock. Lease and reservation apart from each other, since
-- only those of the own cluster count for it. Of a value that is longer than every lease, its beginning is enough.
-- A lock: KEYS lease, reserved; ARGV name.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local found = call('MGET', lease, reserved)
  local value, hold = string.sub(found[1] or '', 1, 4096), string.sub(found[2] or '', 1, 4096)
  out[i + 4] = {'fence', value, call('PTTL', lease), hold, call('PTTL', reserved),
    meta[4 * i + 2] or '0', meta[5] or '0', meta[4 * i + 3] or '', meta[4 * i + 4] or '0|0', meta[4 * i + 5] or '0'}
end
out[4] = counter
return out
