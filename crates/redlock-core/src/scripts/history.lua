-- What shows later that a replica was attached since, or that this server was one itself: the replication id, which the
-- first replica and a promotion change, and how many synchronisations there were. While a backlog stands from before,
-- the id says nothing: it changes when the backlog expires, and not when a replica is attached (Redis 7.0).
local function history()
  local text = redis.call('INFO', 'replication') .. '\n' .. redis.call('INFO', 'stats')
  local function of(name) return string.match(text, '[\r\n]' .. name .. ':([^\r\n]*)') or '' end
  local id = of('master_replid')
  local lasting = of('repl_backlog_active') == '0'
  local synchronised = string.format('%.0f', (tonumber(of('sync_full')) or 0) + (tonumber(of('sync_partial_ok')) or 0))
  return id, synchronised, lasting, of('connected_slaves')
end
