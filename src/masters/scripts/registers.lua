-- All registers, of a sealed master only.
local all = call('HGETALL', KEYS[1])
for i = 1, #all do out[i + 4] = all[i] end
out[4] = counter
return out
