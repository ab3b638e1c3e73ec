-- Begins every script that needs a seal. KEYS[1] = meta; ARGV[1] = not_after, microseconds of this master's TIME;
-- ARGV[2] = fingerprint and quorum id. A master that may not vote, or that runs this too late, writes nothing.
-- `fields` names further registers to read; they are meta[4], meta[5], …
local call = redis.call
local time = call('TIME')
local info = call('INFO', 'server')
local at = string.find(info, 'run_id:', 1, true)
local run_id = at and string.sub(info, at + 7, at + 46)
local meta = call('HMGET', KEYS[1], 'seal', 'fingerprint', 'counter', unpack(fields))
if meta[1] ~= run_id then return {'unsealed', time[1], time[2]} end
if meta[2] ~= ARGV[2] then return {'foreign', time[1], time[2]} end
if time[1] * 1000000 + time[2] > tonumber(ARGV[1]) then return {'late', time[1], time[2]} end
local counter = tonumber(meta[3] or '0')
local out = {'ok', time[1], time[2], counter}
