-- Writes RQ's bookkeeping of answered doorbells: they leave no result, so nothing of them stays but the worker's count.
-- KEYS: worker. ARGV: for each doorbell the started registry of its queue, job, execution. Returns how many were ours.
local count = 0
for i = 1, #ARGV, 3 do
  local entry = ARGV[i + 1] .. ':' .. ARGV[i + 2]
  -- Somebody who took us for dead may have dropped or requeued it meanwhile; then it is no longer ours to delete.
  if redis.call('ZREM', ARGV[i], entry) == 1 then
    redis.call('DEL', 'rq:job:' .. ARGV[i + 1], 'rq:executions:' .. ARGV[i + 1], 'rq:execution:' .. entry)
    count = count + 1
  end
end
if count > 0 then redis.call('HINCRBY', KEYS[1], 'successful_job_count', count) end
return count
