-- One page of the registers, beside the run_id, seal and fingerprint of the same moment. Needs no seal, since after a total
-- loss all that is known counts; writes nothing. KEYS meta; ARGV cursor, how many fields to scan.
local time = redis.call('TIME')
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local meta = redis.call('HMGET', KEYS[1], 'counter', 'seal', 'fingerprint')
local page = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
return {'ok', time[1], time[2], meta[1] or '0', run_id, meta[2] or '', meta[3] or '', page[1], page[2]}
