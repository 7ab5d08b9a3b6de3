-- Takes deliveries to webhooks that are due. KEYS: deliveries. ARGV: clock or "", at most, milliseconds until they are due
-- again should their taker die with them. Returns a list of {id, thread, run, event, number of this try}.
local taken = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', in_future(0), 'LIMIT', 0, ARGV[2])) do
  local key = 'postroom:delivery:' .. id
  local thread, run, event = unpack(redis.call('HMGET', key, 'thread', 'run', 'event'))
  if thread then
    redis.call('ZADD', KEYS[1], in_future(ARGV[3]), id)
    taken[#taken + 1] = {id, thread, run, event, redis.call('HINCRBY', key, 'tries', 1)}
  else
    redis.call('ZREM', KEYS[1], id)
  end
end
return taken
