-- For scripts that write. No key is set for longer than the longest lease: where one has longer to live, the clock of this
-- master was set back since. It is shortened to the longest lease, which is never below what a holder may rely on.
local longest = tonumber(string.match(ARGV[2], ' longestLeaseMilliseconds=(%d+) ') or '')
local function remaining(key)
  local left = call('PTTL', key)
  if longest and left > longest then
    call('PEXPIRE', key, longest)
    left = longest
  end
  return left
end
