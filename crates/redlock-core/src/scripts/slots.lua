-- Reads, never writes. A target: ARGV field (slot:<lock>/<object of the target>). What it holds, and up to where no slot is claimed.
local floor = call('HGET', KEYS[1], 'slotFloor') or '0'
for i = 3, #ARGV do
  out[i + 2] = {'slot', call('HGET', KEYS[1], ARGV[i]) or '0|nobody', floor}
end
out[4] = counter
return out
