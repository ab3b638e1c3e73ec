-- Whether a seal ended with the backlog that stood beside it: the replication id has changed. Where no backlog stood, another id
-- shows a copy, and a person decides.
local function has_ended(stored, current)
  stored = stored or ''
  return string.match(stored, '|backlog$') and string.sub(stored, 1, #current + 1) ~= current .. '|'
end
