-- Accepts a run. ARGV: clock, run, mode, on_waiting, idempotency key, priority, start time or "", deadline or "", lane
-- limit, mailbox limit, agent or "", queue, retentions of run, thread and key, record fields, mails (steering only).
-- Returns {"queued" | "delayed" | "steered" | "again", run, doorbell or false, ended runs}.
local run, mode, on_waiting, key, priority = take(), take(), take(), take(), tonumber(take())
local start_at, deadline, max_lane, max_mail = take(), take(), tonumber(take()), tonumber(take())
local agent, queue, keep_run, keep_thread, keep_dedupe = take(), take(), take(), take(), take()
local fields_first, fields_last = take_span()
local mails = {}
for i = 1, tonumber(take()) do mails[i] = {take_span()} end

local run_key, dedupe_key = run_key_of(run), base .. 'dedupe:run:' .. key
local earlier = key ~= '' and redis.call('GET', dedupe_key)
if earlier then return {'again', earlier, false, {}} end
if mails[1] then
  local seen = redis.call('GET', base .. 'dedupe:mail:' .. ARGV[mails[1][1]])
  local reader = seen and string.match(seen, '^%d+ (%S+)$')
  if reader then return {'again', reader, false, {}} end
end
local owner = redis.call('GET', 'postroom:run:' .. run)
if owner == thread_id then return {'again', run, false, {}} end
if owner then return refuse('TAKEN', 'run id ' .. run .. ' is in use on thread ' .. owner .. '; choose another') end

local found = redis.call('HMGET', thread_key, 'open', 'agent', 'epoch', 'created', 'arrivals', 'seq', 'mail', 'stateful',
  'outbox')
local thread = {open = found[1] or '', agent = found[2] or '', epoch = found[3] or '0', created = found[4] or '',
  arrivals = found[5] or '0', seq = found[6] or '', mail = found[7] or '', stateful = found[8] or '', outbox = found[9] or ''}
-- A new thread has nothing queued and nobody to give way.
local queued = thread.created ~= '' and redis.call('ZCARD', lane_key) or 0
local waiting = thread.open ~= '' and redis.call('HGET', run_key_of(thread.open), 'status') == 'waiting'
local busy = thread.open ~= '' or queued > 0

if busy and (mode == 'reject' or (mode == 'enqueue' and waiting and on_waiting == 'reject')) then
  local holder = thread.open ~= '' and thread.open or redis.call('ZRANGE', lane_key, 0, 0)[1]
  return refuse('THREADBUSY', 'the thread is busy with run ' .. holder .. '; wait for it, cancel it or enqueue')
end
local makes_room = mode == 'interrupt' or mode == 'rollback'
local steers = mode == 'steer' and thread.open ~= ''
local delayed = start_at ~= '' and tonumber(start_at) > now
local ahead = delayed and redis.call('ZCARD', timers_key) or queued
if ahead >= max_lane and not makes_room and not steers then
  return refuse('LANEFULL', 'the thread has ' .. ahead .. ' queued runs, the limit is ' .. max_lane .. '; try later')
end
if steers and redis.call('XLEN', mailbox_key) + #mails > max_mail then
  return refuse('MAILFULL', 'the mailbox holds as much unread mail as it may, ' .. max_mail .. '; try later')
end

if steers then
  -- The submission becomes mail; its key remembers the run that reads it, so a retry steers once.
  for _, mail in ipairs(mails) do post(ARGV[mail[1]], thread.open, keep_dedupe, unpack(ARGV, mail[1] + 1, mail[2])) end
  if key ~= '' then redis.call('SET', dedupe_key, thread.open, 'PX', keep_dedupe) end
  return {'steered', thread.open, deliver(thread.open) or false, {}}
end

if agent == '' then agent = thread.agent ~= '' and thread.agent or 'default' end
local arrival = thread.arrivals + 1
redis.call('HSET', thread_key, 'agent', agent, 'queue', queue, 'arrivals', arrival, 'keep_run', keep_run,
  'keep_thread', keep_thread, 'keep_dedupe', keep_dedupe, 'updated', now_text,
  'created', thread.created ~= '' and thread.created or now_text)
if not busy and thread.created ~= '' then for_each_key(thread, 'PERSIST') end

local ended = {}
if makes_room then
  local open
  thread.epoch, open, ended = interrupt(mode == 'rollback' and 'rolled_back' or 'interrupted')
  if mode == 'rollback' and open ~= '' then
    append_log('role', 'retraction', 'retracts', open)
    -- The run may have written the summary that the mark points at; reading from the beginning is always right.
    redis.call('HDEL', thread_key, 'mark')
  end
end

redis.call('HSET', run_key, 'status', 'queued', 'agent', agent, 'queue', queue, 'priority', priority,
  'epoch', thread.epoch, 'keep', keep_run, 'on_waiting', on_waiting,
  'created', now_text, 'updated', now_text, 'step', '0', 'attempts', '0', 'commits', '0', 'rings', '1',
  'rung', now_text, unpack(ARGV, fields_first, fields_last))
if key ~= '' then
  redis.call('HSET', run_key, 'idempotency_key', key)
  redis.call('SET', dedupe_key, run)
end
enlist(run)
if deadline ~= '' then
  redis.call('HSET', run_key, 'deadline', deadline)
  set_timer(deadline, 'deadline', run)
end
if delayed then
  redis.call('HSET', run_key, 'start_at', start_at)
  set_timer(start_at, 'start', run)
  return {'delayed', run, false, ended}
end
local gone = busy and give_way(on_waiting)
if gone then ended[#ended + 1] = gone end
line_up(run, priority, arrival)
knock(run, queue, 1)
-- Whoever stood behind the run that gave way may come first.
return {'queued', run, gone and hand_over() or false, ended}
