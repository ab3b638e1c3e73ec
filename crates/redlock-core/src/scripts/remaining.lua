-- For scripts that only read.
local function remaining(key) return call('PTTL', key) end
