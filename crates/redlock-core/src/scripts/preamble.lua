-- Begins every script that needs a seal. KEYS[1] = meta; ARGV[1] = not_after, microseconds of this master's TIME;
-- ARGV[2] = fingerprint and quorum id. A master that may not vote, or that runs this too late, writes nothing.
-- `fields` names further registers to read; they are meta[5], meta[6], …
local call = redis.call
local time = call('TIME')
local meta = call('HMGET', KEYS[1], 'seal', 'fingerprint', 'counter', 'replication', unpack(fields))
-- The replication id is drawn anew by each start, by a promotion, and by the first replica unless a backlog stands; only a
-- replica has that of another server. So a master with the id of the seal is the process that was sealed, and was never a
-- replica since. The text is made by the server that runs this, whatever lies between: nothing that a client has read is
-- trusted.
local info = call('INFO', 'replication')
local master = string.find(info, '\nrole:master\r\nconnected_slaves:0\r', 1, true)
local sealed = master and meta[1] and meta[1] ~= ''
  and string.find(info, '\nmaster_replid:' .. string.sub(meta[4] or '', 1, 40) .. '\r', master, true)
if not sealed then return {'unsealed', time[1], time[2]} end
if meta[2] ~= ARGV[2] then return {'foreign', time[1], time[2]} end
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return {'late', time[1], time[2]} end
local counter = tonumber(meta[3] or '0')
local out = {'ok', time[1], time[2], counter}
