-- Removes what locks left after a clean end. A lock: KEYS lease, reserved; ARGV name, token, register: `held`, with its delay,
-- or `clean`. A later lease keeps its registers, and so does a lock that is leased or reserved here.
for i = 1, (#ARGV - 2) / 3 do
  local name, token, register = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), ARGV[3 * i + 2]
  local removed = 0
  if call('EXISTS', KEYS[2 * i], KEYS[2 * i + 1]) == 0 then
    local field = register .. ':' .. name
    if tonumber(call('HGET', KEYS[1], field) or '0') <= token then removed = call('HDEL', KEYS[1], field) end
    local declared = register == 'held' and string.match(call('HGET', KEYS[1], 'delay:' .. name) or '', '^(%d+)|')
    if declared and tonumber(declared) <= token then removed = removed + call('HDEL', KEYS[1], 'delay:' .. name) end
  end
  out[i + 4] = removed
end
out[4] = counter
return out
