-- The present replication id; and whether a seal ended with the backlog that stood beside it: the id has changed. Where no backlog
-- stood, another id shows a copy, and a person decides.
local current = string.match(redis.call('INFO', 'replication'), 'master_replid:([^\r\n]*)') or ''
local function has_ended(stored)
  stored = stored or ''
  return string.match(stored, '|backlog$') and string.sub(stored, 1, #current + 1) ~= current .. '|'
end
