-- As reserve.lua. ARGV[3] = channel, ARGV[4] = own cluster. A lock: KEYS lease, reserved; ARGV stem, name, the cluster that may
-- enter, and what becomes of an own reservation whose place another cluster would take: empty, it is replaced; `keep`, the
-- reserve is refused, and the lease stays.
-- A reservation is never shortened: pods of the own cluster may run by it.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem, cluster = ARGV[4 * i + 1], ARGV[4 * i + 3]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  local own = is_for(hold, ARGV[4])
  local theirs = is_for(hold, cluster)
  local kept = own and not theirs and ARGV[4 * i + 4] == 'keep'
  local mine = value and string.sub(value, 1, #stem) == stem and (not hold or own or theirs)
  if mine and not kept then
    local left = math.max(remaining(lease), 1)
    if hold then left = math.max(left, remaining(reserved)) end
    call('DEL', lease)
    call('SET', reserved, cluster, 'PX', left)
    call('PUBLISH', ARGV[3], ARGV[4 * i + 2])
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
