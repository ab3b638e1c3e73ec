-- ARGV[3] = channel. A lock: KEYS lease, reserved; ARGV stem, name, the cluster that may enter.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local cluster = ARGV[3 * i + 3]
  local value, hold = redis.call('GET', lease), redis.call('GET', reserved)
  if mine(value, ARGV[3 * i + 1]) and (not hold or hold == cluster) then
    local left = math.max(redis.call('PTTL', lease), 1)
    redis.call('DEL', lease)
    redis.call('SET', reserved, cluster, 'PX', left)
    redis.call('PUBLISH', ARGV[3], ARGV[3 * i + 2])
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = text(counter)
return out
