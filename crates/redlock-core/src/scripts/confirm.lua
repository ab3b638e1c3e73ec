-- A lock: KEYS lease; ARGV the exact value that was granted, token. Not exactly that any more: no acknowledgement.
for i = 1, #KEYS - 1 do
  local token = tonumber(ARGV[2 * i + 2])
  if call('GET', KEYS[i + 1]) == ARGV[2 * i + 1] then
    if counter < token then
      counter = token
      call('HSET', KEYS[1], 'counter', string.format('%.0f', counter))
    end
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
