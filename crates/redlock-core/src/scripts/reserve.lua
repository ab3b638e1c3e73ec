-- ARGV[3] = channel, ARGV[4] = own cluster. A lock: KEYS lease, reserved; ARGV stem, name, the cluster that may enter.
-- A reservation for the own cluster is the one by which the lock came here: it is replaced.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local cluster = ARGV[3 * i + 4]
  local stem = ARGV[3 * i + 2]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  if value and string.sub(value, 1, #stem) == stem and (not hold or is_for(hold, cluster) or is_for(hold, ARGV[4])) then
    local left = math.max(remaining(lease), 1)
    call('DEL', lease)
    call('SET', reserved, cluster, 'PX', left)
    call('PUBLISH', ARGV[3], ARGV[3 * i + 3])
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
