-- A slot: ARGV field (slot:<lock>/<object of the target>), slot, job (`<uid>@<cluster>`). The register holds
-- `<slot>|<job>` and only grows; equal slot and equal uid is the same claim again, whatever the cluster is called by now.
local function uid_of(job) return string.match(job, '^[^@]*') end
local floor = tonumber(call('HGET', KEYS[1], 'slotFloor') or '0')
for i = 1, (#ARGV - 2) / 3 do
  local field, slot, job = ARGV[3 * i], tonumber(ARGV[3 * i + 1]), ARGV[3 * i + 2]
  local last, by = string.match(call('HGET', KEYS[1], field) or '0|nobody', '^(%d+)|(.*)$')
  last = tonumber(last)
  if slot <= floor then
    out[i + 4] = 0
  elseif slot > last then
    call('HSET', KEYS[1], field, string.format('%.0f', slot) .. '|' .. job)
    out[i + 4] = 1
  elseif slot == last and uid_of(by) == uid_of(job) and uid_of(job) ~= 'nobody' then
    out[i + 4] = 1
  else
    out[i + 4] = 0
  end
end
out[4] = counter
return out
