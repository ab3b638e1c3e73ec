-- The obstacle of a grant: the lease first, until both it and the reservation are gone.
local function obstacle(lease, reserved, value, hold)
  local left = -2
  if value then left = call('PTTL', lease) end
  if hold and left ~= -1 then
    local reserved_left = call('PTTL', reserved)
    if reserved_left == -1 or reserved_left > left then left = reserved_left end
  end
  if value then return {'lease', value, left} end
  return {'reserved', hold, left}
end
