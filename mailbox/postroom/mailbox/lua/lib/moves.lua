-- The moves of a run: each is a row of the lifecycle table, and each change of status goes through here.

-- Staying where one is counts as a move, since a retry does that.
local function may_move(machine, old, new)
  return machine[old] ~= nil and (old == new or machine[old][new] == true)
end

-- A doorbell the caller must ring: run, queue, how often it has rung by now. It may get lost, hence the look.
local function ring(run)
  look_by(now + RING_AGAIN)
  local number = redis.call('HINCRBY', run_key_of(run), 'rings', 1)
  redis.call('HSET', run_key_of(run), 'rung', text(now))
  return {run, redis.call('HGET', run_key_of(run), 'queue'), text(number)}
end

-- The journal holds the calls whose results are not in the log yet. When a run ends before its step does, each gets its
-- one visible result here: the real one if it finished, otherwise the reason why it will never have one.
local function settle_calls(run, step, reason)
  local calls_key = run_key_of(run) .. ':calls'
  local flat = redis.call('HGETALL', calls_key)
  if #flat == 0 then return end
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
    local words = journal['text:' .. call]
    if not CALL_DONE[journal['status:' .. call]] or not words then words = '[tool call ' .. reason .. ']' end
    local message = {'role', 'tool', 'run', run, 'step', step, 'call', call, 'text', words}
    if journal['body:' .. call] and words == journal['text:' .. call] then
      message[#message + 1] = 'body'
      message[#message + 1] = journal['body:' .. call]
    end
    append_log(unpack(message))
  end
  redis.call('DEL', calls_key)
end

-- Puts a run back where a worker may claim it. The thread's open run is always its head, so it needs no place in the lane.
local function requeue(run, reason, attempts)
  redis.call('HSET', run_key_of(run), 'status', 'queued', 'updated', text(now))
  redis.call('HDEL', run_key_of(run), 'waiting', 'wake', 'worker')
  redis.call('ZREM', timers_key, 'wake ' .. run)
  look_by(now + RING_AGAIN)
  emit(run, 'type', 'run_requeued', 'reason', reason, 'attempts', attempts)
end

-- Ends a run on every path there is: one terminal event, every call answered, every trace given its end.
local function end_run(run, kind, code, message, ...)
  local run_key = run_key_of(run)
  local record = read(run_key, 'step', 'keep', 'idempotency_key')
  settle_calls(run, record.step, code ~= '' and code or kind)
  redis.call('HSET', run_key, 'status', 'done', 'termination', kind, 'code', code, 'message', message,
    'finished', text(now), 'updated', text(now))
  redis.call('HDEL', run_key, 'waiting', 'wake', 'worker')
  emit(run, 'type', 'run_finish', 'termination', kind, 'code', code, 'message', message, ...)
  redis.call('PEXPIRE', run_key, record.keep)
  redis.call('PEXPIRE', run_key .. ':events', record.keep)
  redis.call('PEXPIRE', run_key .. ':state', record.keep)
  redis.call('PEXPIRE', 'postroom:run:' .. run, record.keep)
  redis.call('ZADD', 'postroom:runs', text(now), run)
  redis.call('ZREM', lane_key, run)
  redis.call('ZREM', timers_key, 'start ' .. run, 'wake ' .. run, 'deadline ' .. run)
  local thread = read(thread_key, 'open', 'keep_dedupe')
  if record.idempotency_key ~= '' then
    -- The key outlives its run for a while, but only if it is still this run's.
    local dedupe_key = base .. 'dedupe:run:' .. record.idempotency_key
    if redis.call('GET', dedupe_key) == run then redis.call('PEXPIRE', dedupe_key, thread.keep_dedupe) end
  end
  if thread.open == run then
    redis.call('HSET', thread_key, 'open', '', 'last', run, 'updated', text(now))
    redis.call('DEL', lock_key)
  end
end

-- A run nobody could finish is kept on a list of its own, for an operator to retry or drop.
local function dead_letter(run, code, message)
  end_run(run, 'error', code, message)
  redis.call('ZADD', 'postroom:dead', text(now), run)
end

-- How a flagged run ends when no worker is there to end it.
local function end_cancelled(run, code)
  local kind = code == 'deadline' and 'stopped' or 'cancelled'
  end_run(run, kind, code, '')
end

-- A run for mail that found no run to read it; no caller is there to name it, so it is numbered.
local function start_for_mail()
  local thread = read(thread_key, 'agent', 'queue', 'epoch', 'keep_run')
  local run = 'mail-' .. redis.call('INCR', 'postroom:mail-runs')
  local arrival = redis.call('HINCRBY', thread_key, 'arrivals', 1)
  redis.call('HSET', run_key_of(run), 'status', 'queued', 'agent', thread.agent, 'queue', thread.queue,
    'epoch', thread.epoch, 'priority', '128', 'keep', thread.keep_run, 'origin', 'mail',
    'created', text(now), 'updated', text(now), 'step', '0', 'attempts', '0', 'commits', '0')
  redis.call('ZADD', lane_key, text(128 * 1e13 + arrival), run)
  enlist(run)
  return run
end

-- After the open run has left: the next one's doorbell, a run for mail left unread, or an idle thread that may expire.
local function hand_over()
  local thread = read(thread_key, 'open', 'keep_thread')
  if thread.open ~= '' then return nil end
  local head = redis.call('ZRANGE', lane_key, 0, 0)[1]
  if not head and redis.call('EXISTS', mailbox_key) == 1 then head = start_for_mail() end
  if head then return ring(head) end
  if redis.call('EXISTS', timers_key) == 0 then
    for _, idle_key in ipairs({thread_key, log_key, base .. 'state'}) do
      redis.call('PEXPIRE', idle_key, thread.keep_thread)
    end
    redis.call('ZREM', 'postroom:watch', thread_id)
    redis.call('ZADD', 'postroom:threads', text(now), thread_id)
  end
  return nil
end

-- A thread that gets work again must not expire under it.
local function keep_thread_alive()
  for _, idle_key in ipairs({thread_key, log_key, base .. 'state'}) do redis.call('PERSIST', idle_key) end
end

-- Asks a run to end: a live worker is told and does it, otherwise it is done here. True when it has ended.
local function stop(run, code)
  local lock = read_lock()
  if redis.call('HGET', run_key_of(run), 'status') == 'running' and alive(lock) then
    if redis.call('HSETNX', run_key_of(run), 'cancel', code) == 1 then
      emit(run, 'type', 'cancel_requested', 'reason', code)
    end
    tell(lock, 'cancel')
    return false
  end
  end_cancelled(run, code)
  return true
end
