-- A lock: KEYS lease; ARGV stem, field (held:<lock> or clean:<lock>), token. Only where the lease is mine.
for i = 1, #KEYS - 1 do
  local field, token = ARGV[3 * i + 1], ARGV[3 * i + 2]
  local value, stem = call('GET', KEYS[i + 1]), ARGV[3 * i]
  if value and string.sub(value, 1, #stem) == stem then
    if tonumber(call('HGET', KEYS[1], field) or '0') < tonumber(token) then
      call('HSET', KEYS[1], field, token)
    end
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
