-- ARGV[3] = own cluster. A lock: KEYS lease, reserved; ARGV stem, token, milliseconds.
for i = 1, (#KEYS - 1) / 2 do
  local lease, reserved = KEYS[2 * i], KEYS[2 * i + 1]
  local stem, token, duration = ARGV[3 * i + 1], ARGV[3 * i + 2], ARGV[3 * i + 3]
  local found = call('MGET', lease, reserved)
  local value, hold = found[1], found[2]
  if is_for(hold, ARGV[3]) then hold = false end
  if hold or (value and string.sub(value, 1, #stem) ~= stem) then
    out[i + 4] = obstacle(lease, reserved, value, hold)
  elseif value then
    -- Never SET: PEXPIRE works when the memory is full. Never shorter: an earlier renewal, of a shorter lease, may run
    -- after a later one when the connection changed between them.
    if remaining(lease) < tonumber(duration) then call('PEXPIRE', lease, duration) end
    out[i + 4] = 1
  else
    -- Lost at a sealed master: put back. The counter first, so that no later grant can repeat the token.
    local healed = true
    if counter < tonumber(token) then
      local raised = redis.pcall('HSET', KEYS[1], 'counter', token)
      healed = type(raised) == 'number'
      if healed then counter = tonumber(token) end
    end
    local put = healed and redis.pcall('SET', lease, stem .. token, 'PX', duration)
    if put and not put.err then out[i + 4] = 1 else out[i + 4] = {'error'} end
  end
end
out[4] = counter
return out
