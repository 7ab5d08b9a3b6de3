-- Takes up to N doorbells from the queues, in their order, and writes RQ's bookkeeping of a started job.
-- KEYS: queue lists. ARGV: how many, worker, now as ISO time, now in seconds, when the job counts as abandoned, batch id.
-- Returns a list of {job, execution, queue, data}. A job whose hash is gone is passed over.
local wanted, worker, at, now, abandoned, batch = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local taken = {}

-- Registers a job as started; false when its hash is gone.
local function start(job, queue)
  local job_key = 'rq:job:' .. job
  local data = redis.call('HGET', job_key, 'data')
  if not data then return false end
  local execution = batch .. #taken
  local entry = job .. ':' .. execution
  redis.call('HSET', job_key, 'status', 'started', 'started_at', at, 'last_heartbeat', at, 'worker_name', worker)
  redis.call('HSET', 'rq:execution:' .. entry, 'id', execution, 'created_at', now, 'last_heartbeat', now,
    'worker_name', worker)
  redis.call('EXPIREAT', 'rq:execution:' .. entry, abandoned)
  redis.call('ZADD', 'rq:executions:' .. job, abandoned, execution)
  redis.call('EXPIREAT', 'rq:executions:' .. job, abandoned)
  taken[#taken + 1] = {job, execution, queue, data}
  return entry
end

for _, queue_key in ipairs(KEYS) do
  local queue, started = string.sub(queue_key, 10), {}
  while #taken < wanted do
    local jobs = redis.call('LPOP', queue_key, wanted - #taken)
    if not jobs then break end
    for _, job in ipairs(jobs) do
      local entry = start(job, queue)
      if entry then
        started[#started + 1] = abandoned
        started[#started + 1] = entry
      end
    end
  end
  if started[1] then redis.call('ZADD', 'rq:wip:' .. queue, unpack(started)) end
end
return taken
