-- Looks after a thread: what fell due, whose worker died, which doorbell went unanswered. ARGV: clock, attempts allowed,
-- name of a worker known to be dead or "". Safe to call at any time, by anybody.
-- Returns {when to look again or 0, run dead-lettered or "", doorbell or false, 1 if there are errands to carry out}.
local max_attempts, dead_worker = tonumber(take()), take()
local lock = read_lock()
if lock and lock.worker == dead_worker then
  unlock()
  lock = nil
end

-- Nobody decided in time: the ticket expires and the run goes on with that as its answer.
local function expire_tickets(run)
  local calls_key = run_key_of(run) .. ':calls'
  local flat = redis.call('HGETALL', calls_key)
  local journal = {}
  for i = 1, #flat, 2 do journal[flat[i]] = flat[i + 1] end
  for name, value in pairs(journal) do
    local call = string.match(name, '^expires:(.*)$')
    if call and tonumber(value) < now and journal['ticket:' .. call] == 'open' then
      redis.call('HSET', calls_key, 'ticket:' .. call, 'expired', 'decided:' .. call, 'expired')
      emit(run, 'type', 'ticket_expired', 'call', call)
    end
  end
end

-- Set when this look itself changed who is next: then the doorbell rings at once.
local stirred = false

local due = {}
function due.start(run, record)
  if record.status ~= 'queued' then return end
  redis.call('HDEL', run_key_of(run), 'start_at')
  if read(thread_key, 'open').open ~= run then
    give_way(record.on_waiting)
    line_up(run, tonumber(record.priority), redis.call('HINCRBY', thread_key, 'arrivals', 1))
  end
  stirred = true
end
function due.wake(run, record)
  if record.status ~= 'waiting' then return end
  expire_tickets(run)
  requeue(run, 'time', record.attempts)
  stirred = true
end
function due.deadline(run, record)
  if record.status == 'done' or record.status == '' then return end
  if stop(run, 'deadline') then stirred = true end
end

for _, timer in ipairs(redis.call('ZRANGEBYSCORE', timers_key, '-inf', now_text)) do
  redis.call('ZREM', timers_key, timer)
  local kind, run = string.match(timer, '^(%S+) (%S+)$')
  due[kind](run, read(run_key_of(run), 'status', 'priority', 'on_waiting', 'attempts'))
end

-- A running run without a live lock has lost its worker: it goes on elsewhere, unless it was to stop or died too often.
local function take_back(run)
  local record = read(run_key_of(run), 'attempts', 'cancel', 'worker', 'remote')
  unlock()
  stirred = true
  if record.cancel ~= '' and record.remote == '' then
    end_cancelled(run, record.cancel)
    return ''
  end
  local attempts = tonumber(record.attempts) + 1
  redis.call('HSET', run_key_of(run), 'attempts', attempts)
  if attempts >= max_attempts then
    dead_letter(run, 'crashed', 'its worker died ' .. attempts .. ' times, last ' .. record.worker)
    return run
  end
  requeue(run, 'crash', attempts)
  return ''
end

-- Whose turn it is when nobody works: the open run if it is queued, else the first of the lane.
local function head_of(open, status)
  if open == '' then return redis.call('ZRANGE', lane_key, 0, 0)[1] end
  if status == 'queued' and (tonumber(read(run_key_of(open), 'start_at').start_at) or 0) <= now then return open end
  return nil
end

-- How often a doorbell that says it is queued is believed.
local BELIEVED = 3

-- An unanswered doorbell rings again, each time after twice as long: the fleet may just be busy.
local function ring_if_silent(head)
  local record = read(run_key_of(head), 'rung', 'unanswered', 'rings', 'queue')
  local unanswered = tonumber(record.unanswered) or 0
  local silent_until = (tonumber(record.rung) or 0) + RING_AGAIN * 2 ^ math.min(unanswered, 6)
  if silent_until > now then return nil, silent_until end
  redis.call('HSET', run_key_of(head), 'unanswered', unanswered + 1, 'rung', now_text)
  local again = now + RING_AGAIN * 2 ^ math.min(unanswered + 1, 6)
  if redis.call('HGET', 'rq:job:' .. head .. '-' .. record.rings, 'status') ~= 'queued' then return ring(head), again end
  -- It still lies in its queue, as far as one can tell; after a while the same job is put there once more.
  if unanswered < BELIEVED then return nil, again end
  knock(head, record.queue, record.rings)
  return {head, record.queue, record.rings}, again
end

local dead_run, bell, look_again = '', nil, nil
local open = read(thread_key, 'open').open
local status = open ~= '' and read(run_key_of(open), 'status').status or ''
if open ~= '' and (status == 'done' or status == '') then
  -- Somebody deleted or broke the record by hand; the thread must not stay open for a run that is not there.
  redis.call('HSET', thread_key, 'open', '')
  stirred, open, status = true, '', ''
end
if status == 'running' and not alive(lock) then
  dead_run = take_back(open)
  open = read(thread_key, 'open').open
  status = open ~= '' and read(run_key_of(open), 'status').status or ''
end

if status == 'running' then
  look_again = lock.till + 1
elseif stirred then
  local head = head_of(open, status)
  if head then bell = ring(head) else bell = hand_over() end
  if bell then look_again = now + RING_AGAIN end
else
  local head = head_of(open, status)
  if head then bell, look_again = ring_if_silent(head) end
end
local timer = redis.call('ZRANGE', timers_key, 0, 0, 'WITHSCORES')[2]
if timer and (not look_again or tonumber(timer) < look_again) then look_again = tonumber(timer) end
local outbox, errands = read(thread_key, 'outbox', 'outbox_at'), 0
if (tonumber(outbox.outbox) or 0) > 0 then
  local due_at = tonumber(outbox.outbox_at) or 0
  -- Should whoever looks die over them, they are looked for again.
  if due_at <= now then errands, due_at = 1, now + RING_AGAIN end
  if not look_again or due_at < look_again then look_again = due_at end
end
-- A look sets the time of the next one, be it later than what was there.
unwatch()
if look_again then look_by(look_again) end
return {look_again and text(look_again) or '0', dead_run, bell or false, errands}
