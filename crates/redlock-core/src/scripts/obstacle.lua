-- The obstacle of a grant: the lease first, until both it and the reservation are gone. A value that is longer than every
-- lease is foreign; its beginning is enough, and the reply stays within the bound of the client.
local function obstacle(lease, reserved, value, hold)
  local left = -2
  if value then left = remaining(lease) end
  if hold and left ~= -1 then
    local reserved_left = remaining(reserved)
    if reserved_left == -1 or reserved_left > left then left = reserved_left end
  end
  if value then return {'lease', string.sub(value, 1, 4096), left} end
  return {'reserved', string.sub(hold, 1, 4096), left}
end
