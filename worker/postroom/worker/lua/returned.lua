-- Puts a taken doorbell back to the head of its queue, as if it had never been taken.
-- KEYS: started registry, queue list. ARGV: job, execution.
local entry = ARGV[1] .. ':' .. ARGV[2]
if redis.call('ZREM', KEYS[1], entry) == 0 then return 0 end
redis.call('DEL', 'rq:executions:' .. ARGV[1], 'rq:execution:' .. entry)
redis.call('HSET', 'rq:job:' .. ARGV[1], 'status', 'queued')
redis.call('HDEL', 'rq:job:' .. ARGV[1], 'started_at', 'last_heartbeat', 'worker_name')
redis.call('LPUSH', KEYS[2], ARGV[1])
return 1
