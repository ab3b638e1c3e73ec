-- One page of the registers, beside the run_id, seal and fingerprint of the same moment. Needs no seal, since after a total
-- loss all that is known counts; writes nothing. The seal is empty where it is not that of this process: of a replica, and of
-- a master that was promoted since. KEYS meta; ARGV cursor, how many fields to scan.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local meta = redis.call('HMGET', KEYS[1], 'counter', 'seal', 'fingerprint', 'replication')
local info = redis.call('INFO', 'replication')
local id = '\nmaster_replid:' .. string.sub(meta[4] or '', 1, 40) .. '\r'
if not string.find(info, '\nrole:master\r', 1, true) or not string.find(info, id, 1, true) then meta[2] = '' end
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
return {'ok', time[1], time[2], meta[1] or '0', run_id, meta[2] or '', meta[3] or '', page[1], page[2]}
