-- The moves of a run that more than one script makes: back into the queue, to its end, and what follows from that.

-- Events are numbered, and those told together are one entry of the journal: its id is the number of the last of them, each
-- of them begins with its type. So a reader notices at once when some are missing, and a step costs one entry.
local function write_events(run_key, number, fields)
  if fields[1] then redis.call('XADD', run_key .. ':events', entry_id(number), 'at', now_text, unpack(fields)) end
end

-- Trimming is approximate, so it need not be thought of at every event.
local TRIM_EVERY = 100

local function trim_events(run_key, before, number, most)
  if math.floor(number / TRIM_EVERY) > math.floor(before / TRIM_EVERY) and number > tonumber(most) then
    redis.call('XTRIM', run_key .. ':events', 'MINID', '~', entry_id(number - most + 1))
  end
end

local function emit(run, ...)
  local number = redis.call('HINCRBY', run_key_of(run), 'events', 1)
  write_events(run_key_of(run), number, {...})
  return number
end

-- Whoever asked to be told of an event is owed a delivery, written with it: neither can be there without the other.
local function owe_delivery(run, event)
  local id = run .. '.' .. event
  redis.call('HSET', 'postroom:delivery:' .. id, 'thread', thread_id, 'run', run, 'event', event)
  redis.call('ZADD', 'postroom:deliveries', now_text, id)
end

-- What the thread owes to another one, written with what it follows from; whoever comes first carries it out.
local function owe_errand(...)
  owed = owed + 1
  redis.call('HINCRBY', thread_key, 'outbox', 1)
  redis.call('XADD', base .. 'outbox', entry_id(redis.call('HINCRBY', thread_key, 'errands', 1)), 'at', now_text, ...)
  look_by(now)
end

-- Whoever started a run hears of its end and of what it waits for; not if it was itself who stopped the run.
local function report(run, record, event, code)
  if record.reports == '' or string.sub(code, 1, 7) == 'parent_' then return end
  owe_errand('kind', 'report', 'id', run .. '.' .. event, 'to', record.parent_thread, 'run', run, 'event', event)
end

-- A run that did not come to its own end takes its children along. What works for the thread rather than for a call
-- (`mail`) goes on when newer words only put the run aside.
local function stop_children(run, code)
  local flat = redis.call('HGETALL', run_key_of(run) .. ':children')
  for i = 1, #flat, 2 do
    local how, place = string.match(flat[i + 1], '^(%S+) (.*)$')
    if code ~= 'superseded' or how == 'answer' then
      owe_errand('kind', 'cancel', 'id', flat[i], 'to', place, 'run', flat[i], 'code', 'parent_ended')
    end
  end
end

local function append_log(...)
  local seq = redis.call('HINCRBY', thread_key, 'seq', 1)
  redis.call('XADD', log_key, entry_id(seq), 'at', now_text, ...)
end

-- A wake-up for the one worker that holds the thread; the fact itself is already in a key.
local function tell(lock, word)
  if alive(lock) then
    redis.call('PUBLISH', 'postroom:control:' .. lock.worker, word .. ' ' .. lock.run)
  end
end

-- The lane is ordered by priority, then arrival.
local function line_up(run, priority, arrival)
  redis.call('ZADD', lane_key, text(priority * 1e13 + arrival), run)
end

local function enlist(run)
  redis.call('SET', 'postroom:run:' .. run, thread_id)
  list('postroom:runs', now_text, run)
  list('postroom:threads', now_text, thread_id)
end

-- The journal holds the calls whose results are not in the log yet. When a run ends before its step does, each gets its
-- one visible result here: the real one if it finished, otherwise the reason why it will never have one.
local function settle_calls(run, reason)
  local calls_key = run_key_of(run) .. ':calls'
  local flat = redis.call('HGETALL', calls_key)
  if #flat == 0 then return end
  local step = redis.call('HGET', run_key_of(run), 'step')
  local journal, order = {}, {}
  for i = 1, #flat, 2 do
    journal[flat[i]] = flat[i + 1]
    local call = string.match(flat[i], '^status:(.*)$')
    if call then order[#order + 1] = call end
  end
  table.sort(order, function(a, b)
    local first, second = tonumber(journal['index:' .. a]) or 0, tonumber(journal['index:' .. b]) or 0
    if first == second then return a < b end
    return first < second
  end)
  for _, call in ipairs(order) do
    local words, body = '[tool call ' .. reason .. ']', nil
    if CALL_DONE[journal['status:' .. call]] then words, body = journal['text:' .. call], journal['body:' .. call] end
    local message = {'role', 'tool', 'run', run, 'step', step, 'call', call}
    if words or not body then message[9], message[10] = 'text', words or '' end
    if body then
      message[#message + 1] = 'body'
      message[#message + 1] = body
    end
    append_log(unpack(message))
  end
  redis.call('DEL', calls_key)
end

-- Puts a run back where a worker may claim it. The thread's open run is always its head, so it needs no place in the lane.
local function requeue(run, reason, attempts)
  redis.call('HSET', run_key_of(run), 'status', 'queued', 'updated', now_text, 'waiting', '', 'wake', '', 'worker', '',
    'unanswered', '0')
  redis.call('ZREM', timers_key, 'wake ' .. run)
  look_by(now + RING_AGAIN)
  emit(run, 'type', 'run_requeued', 'reason', reason, 'attempts', attempts)
end

-- What the end of a run needs to know. A script that has read it already, or has more to write, says so itself: `changes` and
-- `thread_changes` go out with the end, each hash written once, and so does what was `told`.
local function look_up(run)
  local record = read(run_key_of(run), 'status', 'keep', 'idempotency_key', 'events', 'phase', 'webhook', 'reports',
    'parent_thread', 'children')
  local thread = read(thread_key, 'open', 'timed')
  record.open, record.timed = thread.open == run, thread.timed
  record.changes, record.thread_changes, record.told = {}, {}, {}
  return record
end

-- Ends a run on every path there is: one terminal event, every call answered, every trace given its end.
local function end_run(run, record, kind, code, message, ...)
  local run_key, number, told = run_key_of(run), (tonumber(record.events) or 0) + 1, record.told
  -- A step whose worker died in the middle is closed here, so that every start has its end.
  if record.phase ~= '' then
    append(told, 'type', 'step_end', 'step', record.phase)
    append(record.changes, 'phase', '')
    number = number + 1
  end
  append(told, 'type', 'run_finish', 'termination', kind)
  if code ~= '' then
    append(told, 'code', code)
    append(record.changes, 'code', code)
  end
  if message ~= '' then
    append(told, 'message', message)
    append(record.changes, 'message', message)
  end
  append(told, ...)
  -- First of all: should the journal be broken, the run has not ended.
  write_events(run_key, number, told)
  if record.open then
    redis.call('HSET', thread_key, 'open', '', 'last', run, 'updated', now_text, unpack(record.thread_changes))
    unlock()
  end
  redis.call('HSET', run_key, 'status', 'done', 'termination', kind, 'events', text(number), 'finished', now_text,
    'updated', now_text, 'worker', '', unpack(record.changes))
  if record.status == 'waiting' then redis.call('HSET', run_key, 'waiting', '', 'wake', '') end
  if not record.bare then
    settle_calls(run, code ~= '' and code or kind)
    redis.call('PEXPIRE', run_key .. ':state', record.keep)
    redis.call('PEXPIRE', run_key .. ':outputs', record.keep)
  end
  if record.webhook ~= '' then owe_delivery(run, number) end
  if record.reports ~= '' then
    report(run, record, number, code)
    -- Mail that a child has left unread was for this run alone.
    redis.call('HSET', thread_key, 'mail_seen', read(thread_key, 'mail').mail)
  end
  if record.children ~= '' then
    if kind ~= 'natural_end' then stop_children(run, code) end
    redis.call('PEXPIRE', run_key .. ':children', record.keep)
  end
  redis.call('PEXPIRE', run_key, record.keep)
  redis.call('PEXPIRE', run_key .. ':events', record.keep)
  redis.call('PEXPIRE', 'postroom:run:' .. run, record.keep)
  if record.status == 'queued' then redis.call('ZREM', lane_key, run) end
  if record.timed ~= '' then
    redis.call('ZREM', timers_key, 'start ' .. run, 'wake ' .. run, 'deadline ' .. run)
  end
  if record.idempotency_key ~= '' then
    -- The key outlives its run for a while, but only if it is still this run's.
    local dedupe_key = base .. 'dedupe:run:' .. record.idempotency_key
    if redis.call('GET', dedupe_key) == run then
      redis.call('PEXPIRE', dedupe_key, redis.call('HGET', thread_key, 'keep_dedupe'))
    end
  end
end

-- A run nobody could finish is kept on a list of its own, for an operator to retry or drop.
local function dead_letter(run, code, message)
  end_run(run, look_up(run), 'error', code, message)
  list('postroom:dead', now_text, run)
end

-- How a flagged run ends when no worker is there to end it.
local function end_cancelled(run, code)
  end_run(run, look_up(run), code == 'deadline' and 'stopped' or 'cancelled', code, '')
end

-- A run for mail that found no run to read it; no caller is there to name it, so it is numbered.
local function name_mail_run() return 'mail-' .. redis.call('INCR', 'postroom:mail-runs') end

local function start_for_mail(run)
  local thread = read(thread_key, 'agent', 'queue', 'epoch', 'keep_run', 'mail')
  redis.call('HSET', thread_key, 'mail_seen', thread.mail)
  redis.call('HSET', run_key_of(run), 'status', 'queued', 'agent', thread.agent, 'queue', thread.queue,
    'epoch', thread.epoch, 'priority', '128', 'keep', thread.keep_run, 'origin', 'mail',
    'created', now_text, 'updated', now_text, 'step', '0', 'attempts', '0', 'commits', '0')
  line_up(run, 128, redis.call('HINCRBY', thread_key, 'arrivals', 1))
  enlist(run)
  return run
end

-- PEXPIRE lets a thread that is left alone expire, PERSIST keeps one that gets work again from that: every key it has, as
-- far as its hash tells of them.
local function for_each_key(thread, command, ...)
  redis.call(command, thread_key, ...)
  if thread.seq ~= '' then redis.call(command, log_key, ...) end
  if thread.mail ~= '' then redis.call(command, mailbox_key, ...) end
  if thread.stateful ~= '' then redis.call(command, base .. 'state', ...) end
  if (tonumber(thread.outbox) or 0) > 0 then redis.call(command, base .. 'outbox', ...) end
end

-- After the open run has left: the next one's doorbell, a run for mail left unread, or an idle thread that may expire.
-- Mail gets a run of its own once: what one run was given and left unread waits for the next, or it would run for ever.
local function hand_over(thread)
  thread = thread or read(thread_key, 'open', 'keep_thread', 'mail', 'mail_seen', 'outbox', 'seq', 'timed', 'stateful')
  if thread.open ~= '' then return nil end
  local head = redis.call('ZRANGE', lane_key, 0, 0)[1]
  local fresh_mail = (tonumber(thread.mail) or 0) > (tonumber(thread.mail_seen) or 0)
  if not head and fresh_mail and redis.call('EXISTS', mailbox_key) == 1 then head = start_for_mail(name_mail_run()) end
  if head then return ring(head) end
  if thread.timed == '' or redis.call('EXISTS', timers_key) == 0 then
    for_each_key(thread, 'PEXPIRE', thread.keep_thread)
    if (tonumber(thread.outbox) or 0) == 0 then unwatch() end
  end
  return nil
end

-- Asks a run to end: a live worker is told and does it, otherwise it is done here. What works for it on a machine that
-- is not ours (`remote`) only a worker can stop, so such a run gets one for that. True when it has ended.
local function stop(run, code)
  local lock = read_lock()
  local record = read(run_key_of(run), 'status', 'remote', 'attempts')
  local held = record.status == 'running' and alive(lock)
  if not held and record.remote == '' then
    end_cancelled(run, code)
    return true
  end
  if redis.call('HSETNX', run_key_of(run), 'cancel', code) == 1 then
    emit(run, 'type', 'cancel_requested', 'reason', code)
  end
  if held then
    tell(lock, 'cancel')
  elseif record.status ~= 'queued' then
    requeue(run, 'cancel', record.attempts)
    ring(run)
  end
  return false
end
