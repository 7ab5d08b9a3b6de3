-- Takes an agent out of service. ARGV: clock, agent, expected version or "", how long its versions are kept for runs that
-- began with one. Returns the number of the version that was dropped, 0 when there was none.
local agent, expected, keep = take(), take(), take()

local present = redis.call('HGET', agents_key, agent)
if not present then return 0 end
local refusal = check_expected(agent, present, expected)
if refusal then return refusal end

redis.call('HDEL', agents_key, agent)
redis.call('HSET', version_key(present), 'replaced', now_text)
for _, number in ipairs(redis.call('ZRANGE', history_key(agent), 0, -1)) do
  redis.call('PEXPIRE', version_key(number), keep)
end
redis.call('PEXPIRE', history_key(agent), keep)
announce(redis.call('INCR', counter_key))
return tonumber(present)
