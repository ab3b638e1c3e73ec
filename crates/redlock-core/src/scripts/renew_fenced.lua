-- As renew.lua. ARGV[3] = own cluster. A lock: KEYS lease, reserved; ARGV stem, token, milliseconds, name, fence mark without
-- its token (empty: the lease was never marked), delay and for how long the lock is kept for the own cluster, milliseconds.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem, token, duration = ARGV[7 * i - 3], ARGV[7 * i - 2], ARGV[7 * i - 1]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  local own = is_for(hold, ARGV[3])
  if own then hold = false end
  if hold or (value and string.sub(value, 1, #stem) ~= stem) then
    out[i + 4] = obstacle(lease, reserved, value, hold)
  else
    local granted, over = true, false
    if value then
      if remaining(lease) < tonumber(duration) then call('PEXPIRE', lease, duration) end
    elseif is_marked_later(ARGV[7 * i], token) then
      granted, over = false, true
    else
      if counter < tonumber(token) then
        granted = type(redis.pcall('HSET', KEYS[1], 'counter', token)) == 'number'
        if granted then counter = tonumber(token) end
      end
      local put = granted and redis.pcall('SET', lease, stem .. token, 'PX', duration)
      granted = put and not put.err
    end
    -- Only where the renewal is granted. No vote depends on it: with a full memory, the recorded values stay. Without the mark the
    -- reservation would extend permits by an earlier one.
    if granted and ARGV[7 * i + 1] ~= '' then
      local raised = raise(ARGV[7 * i], token, ARGV[7 * i + 1], ARGV[7 * i + 2])
      local keep = ARGV[7 * i + 3]
      if type(raised) ~= 'table' then
        if not own then
          redis.pcall('SET', reserved, ARGV[3], 'PX', keep)
        elseif remaining(reserved) < tonumber(keep) then
          call('PEXPIRE', reserved, keep)
        end
      end
    end
    if granted then out[i + 4] = 1 elseif over then out[i + 4] = 0 else out[i + 4] = {'error'} end
  end
end
out[4] = counter
return out
