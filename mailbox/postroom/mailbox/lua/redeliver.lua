-- Owes a delivery that was given up once more, with all its tries. KEYS: deliveries given up, deliveries. ARGV: clock or "",
-- id. Returns 1, or 0 when there is no such delivery.
local key = 'postroom:delivery:' .. ARGV[2]
if redis.call('ZREM', KEYS[1], ARGV[2]) == 0 or redis.call('EXISTS', key) == 0 then return 0 end
redis.call('HSET', key, 'tries', '0')
redis.call('PERSIST', key)
redis.call('ZADD', KEYS[2], in_future(0), ARGV[2])
return 1
