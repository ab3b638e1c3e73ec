-- heldFloor, then held, clean, delay and fence mark of each lock; a lock's name is the third of its arguments.
local fields = {'heldFloor'}
for i = 7, #ARGV, 3 do
  fields[#fields + 1] = 'held:' .. ARGV[i]
  fields[#fields + 1] = 'clean:' .. ARGV[i]
  fields[#fields + 1] = 'delay:' .. ARGV[i]
  fields[#fields + 1] = 'slot:' .. ARGV[i] .. '/!mark'
end
