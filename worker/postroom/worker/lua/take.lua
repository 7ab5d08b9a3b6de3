-- Takes up to N doorbells from the queues, in their order, and writes RQ's bookkeeping of a started job.
-- KEYS: queue lists. ARGV: how many, worker, now as ISO time, now in seconds, when the job counts as abandoned, batch id.
-- Returns a list of {job, execution, queue, data}. A job whose hash is gone is passed over.
local wanted, worker, at, now, abandoned, batch = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local taken = {}
for _, queue_key in ipairs(KEYS) do
  local queue = string.sub(queue_key, 10)
  while #taken < wanted do
    local job = redis.call('LPOP', queue_key)
    if not job then break end
    local job_key = 'rq:job:' .. job
    local data = redis.call('HGET', job_key, 'data')
    if data then
      local execution = batch .. #taken
      local entry = job .. ':' .. execution
      redis.call('HSET', job_key, 'status', 'started', 'started_at', at, 'last_heartbeat', at, 'worker_name', worker)
      redis.call('HSET', 'rq:execution:' .. entry, 'id', execution, 'created_at', now, 'last_heartbeat', now,
        'worker_name', worker)
      redis.call('EXPIREAT', 'rq:execution:' .. entry, abandoned)
      redis.call('ZADD', 'rq:executions:' .. job, abandoned, execution)
      redis.call('EXPIREAT', 'rq:executions:' .. job, abandoned)
      redis.call('ZADD', 'rq:wip:' .. queue, abandoned, entry)
      taken[#taken + 1] = {job, execution, queue, data}
    end
  end
end
return taken
