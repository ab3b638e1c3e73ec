-- heldFloor, then held, fence mark, delay and closed of each lock; a lock has one argument, its name.
local fields = {'heldFloor'}
for i = 3, #ARGV do
  fields[#fields + 1] = 'held:' .. ARGV[i]
  fields[#fields + 1] = 'slot:' .. ARGV[i] .. '/!mark'
  fields[#fields + 1] = 'delay:' .. ARGV[i]
  fields[#fields + 1] = 'closed:' .. ARGV[i]
end
