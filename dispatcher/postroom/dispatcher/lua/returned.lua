-- Puts doorbells back that a worker took and will not answer, each at the head of its queue as if it had never been taken.
-- KEYS: started registry, queue list. ARGV: worker, the function a doorbell names, entries, the one to be heard first
-- last. Those of others are left alone. Returns how many were put back.

-- Whether the run still waits for this very doorbell. Another job, or one that RQ wrote and packed, counts as wanted.
local function wanted(job)
  local data = redis.call('HGET', 'rq:job:' .. job, 'data')
  if not data then return false end
  local well, call = pcall(cjson.decode, data)
  local thread, run = well and type(call) == 'table' and type(call[3]) == 'table' and unpack(call[3], 1, 2)
  if type(thread) ~= 'string' or type(run) ~= 'string' or call[1] ~= ARGV[2] then return true end
  local status, rings = unpack(redis.call('HMGET', 'postroom:{' .. thread .. '}:run:' .. run, 'status', 'rings'))
  return status == 'queued' and job == run .. '-' .. (rings or '')
end

local count = 0
for i = 3, #ARGV do
  local entry = ARGV[i]
  local job = string.match(entry, '^(.*):[^:]*$')
  local mine = job and redis.call('HGET', 'rq:job:' .. job, 'worker_name') == ARGV[1]
  if mine and redis.call('ZREM', KEYS[1], entry) == 1 then
    redis.call('DEL', 'rq:executions:' .. job, 'rq:execution:' .. entry)
    if wanted(job) then
      redis.call('HSET', 'rq:job:' .. job, 'status', 'queued')
      redis.call('HDEL', 'rq:job:' .. job, 'started_at', 'last_heartbeat', 'worker_name')
      redis.call('LPUSH', KEYS[2], job)
      count = count + 1
    else
      redis.call('DEL', 'rq:job:' .. job)
    end
  end
end
return count
