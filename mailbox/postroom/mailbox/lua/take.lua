-- Takes up to N doorbells from the queues, in their order, writes RQ's bookkeeping of a started job, and claims the run
-- each rings for. KEYS: queue lists. Arguments: clock, how many, worker, lease, name of this batch, "again" when the reply
-- to an earlier call was lost: then what that one took, if anything, is given once more; how long the worker's record must
-- have left, or "": a call that comes long after it was sent must not give anything to a worker that died meanwhile. A
-- job whose hash is gone is passed over. Returns a list of {job, execution, queue, data}, followed by thread, run and
-- claim where there is one; by thread and run alone where there is nothing to do.
local wanted, worker, lease, batch, again, left = tonumber(take()), take(), take(), take(), take() == 'again', take()
if left ~= '' and redis.call('PTTL', 'postroom:worker:' .. worker) < tonumber(left) then return {} end
local at = iso(now)
local abandoned = text(math.floor(now / 1000) + ABANDONED_AFTER)
local taken = {}
-- Messages that claims may bring along. A call that brought dozens of long threads would keep everybody waiting, so the
-- doorbells that follow come without a claim, and their worker asks for each by itself. What was claimed before is told
-- again whatever it brings: asked for by itself it would be refused, for it is running.
local room = again and math.huge or 500

-- We write the call that a job stands for as it is, RQ packs it.
local function plain(data) return string.sub(data, 1, 1) == '[' end

-- Thread and run that a doorbell of ours names; nothing for what RQ wrote, and for jobs of others.
local function rings_for(data)
  if not plain(data) then return nil end
  local well, call = pcall(cjson.decode, data)
  if not well or call[1] ~= JOB or type(call[3]) ~= 'table' then return nil end
  return unpack(call[3], 1, 2)
end

-- A doorbell as it is handed out.
local function hand_out(job, execution, queue, data)
  local bell = {job, execution, queue, data}
  taken[#taken + 1] = bell
  if room <= 0 then return end
  local thread, run = rings_for(data)
  if type(thread) ~= 'string' or type(run) ~= 'string' then return end
  open_thread('postroom:{' .. thread .. '}:thread')
  -- The others are out of their queue already, so one whose record is broken must not end the call.
  local well, claim = pcall(claim_run, run, worker, lease, execution)
  if not well then return end
  bell[5], bell[6], bell[7] = thread, run, claim
  if claim then room = room - #claim[#claim] end
end

-- RQ's notes on one attempt at a job. Its own code wants them back when it closes the books on a job that it wrote; nobody
-- ever reads those of a doorbell of ours.
local function note_execution(job, entry, execution)
  local seconds = string.format('%.3f', now / 1000)
  redis.call('HSET', 'rq:job:' .. job, 'last_heartbeat', at)
  redis.call('HSET', 'rq:execution:' .. entry, 'id', execution, 'created_at', seconds, 'last_heartbeat', seconds,
    'worker_name', worker)
  redis.call('EXPIREAT', 'rq:execution:' .. entry, abandoned)
  redis.call('ZADD', 'rq:executions:' .. job, abandoned, execution)
  redis.call('EXPIREAT', 'rq:executions:' .. job, abandoned)
end

-- Registers a job as started; false when its hash is gone, or something else stands in its place.
local function start(job, queue)
  local job_key = 'rq:job:' .. job
  local data = redis.pcall('HGET', job_key, 'data')
  if type(data) ~= 'string' then return false end
  local execution = batch .. #taken
  local entry = job .. ':' .. execution
  redis.call('HSET', job_key, 'status', 'started', 'started_at', at, 'worker_name', worker)
  if not plain(data) then note_execution(job, entry, execution) end
  hand_out(job, execution, queue, data)
  return entry
end

if again then
  for _, queue_key in ipairs(KEYS) do
    local queue = string.sub(queue_key, 10)
    for _, entry in ipairs(redis.call('ZRANGE', 'rq:wip:' .. queue, 0, -1)) do
      local job, execution = string.match(entry, '^(.*):([^:]*)$')
      local data = job and string.sub(execution, 1, #batch) == batch and redis.call('HGET', 'rq:job:' .. job, 'data')
      if data then hand_out(job, execution, queue, data) end
    end
  end
  if taken[1] then return taken end
end

for _, queue_key in ipairs(KEYS) do
  local queue, started = string.sub(queue_key, 10), {}
  while #taken < wanted do
    local asked = wanted - #taken
    local jobs = redis.call('LPOP', queue_key, asked)
    if not jobs then break end
    for _, job in ipairs(jobs) do
      local entry = start(job, queue)
      if entry then
        started[#started + 1] = abandoned
        started[#started + 1] = entry
      end
    end
    if #jobs < asked then break end
  end
  if started[1] then redis.call('ZADD', 'rq:wip:' .. queue, unpack(started)) end
end
return taken
