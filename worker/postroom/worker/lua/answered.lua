-- Writes RQ's bookkeeping of an answered doorbell: it leaves no result, so nothing of it stays but the worker's count.
-- KEYS: started registry of the queue. ARGV: job, execution, worker key.
local entry = ARGV[1] .. ':' .. ARGV[2]
-- Somebody who took us for dead has dropped or requeued it meanwhile; then it is no longer ours to delete.
if redis.call('ZREM', KEYS[1], entry) == 0 then return 0 end
redis.call('DEL', 'rq:job:' .. ARGV[1], 'rq:executions:' .. ARGV[1], 'rq:execution:' .. entry)
redis.call('HINCRBY', ARGV[3], 'successful_job_count', 1)
return 1
