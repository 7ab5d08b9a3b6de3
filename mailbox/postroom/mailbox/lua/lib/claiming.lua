-- Taking a thread for its head run.

-- Takes the run out of the lane if it is the first there.
local function step_out(run)
  local head = redis.call('ZPOPMIN', lane_key)
  if head[1] == run then return true end
  if head[1] then redis.call('ZADD', lane_key, head[2], head[1]) end
  return false
end

-- What was never written need not be asked for.
local function unless(missing, ...) return missing and {} or redis.call(...) end

-- Raises the fence; the same activation asked for again, because the reply was lost, gets its own claim back. Returns all
-- that the loop needs: {fence, lease_until, when the run was first started, fields of the thread and of the run as they
-- were, calls, run state, thread state, unread mail, log from the last compaction mark}; or nothing, and why. The fields
-- that Lua looks at are the first of those that are told; those of a run that has begun before come after the others.
local function claim_run(run, worker, lease, activation)
  local run_key = run_key_of(run)
  local thread = redis.call('HMGET', thread_key, unpack(CLAIMED_OF_THREAD))
  local record = redis.call('HMGET', run_key, unpack(CLAIMED_OF_RUN))
  local open, last_fence, mail, seq, mark, stateful = thread[1] or '', unpack(thread, 2, 6)
  local status, started, start_at, deadline, commits, cancel = unpack(record, 1, 6)
  local begun = started and redis.call('HMGET', run_key, unpack(CLAIMED_OF_BEGUN)) or {}
  local holder, held_for = begun[1], begun[2]
  for place = 1, #CLAIMED_OF_BEGUN do record[#CLAIMED_OF_RUN + place] = begun[place] end
  local again = status == 'running' and open == run and activation ~= '' and held_for == activation and holder == worker

  if not status then return nil, 'does not exist or has expired' end
  if status ~= 'queued' and not again then return nil, 'is ' .. status end
  if open ~= '' and open ~= run then return nil, 'waits for run ' .. open end
  if (tonumber(start_at) or 0) > now then return nil, 'is not due before ' .. start_at end
  -- One that is to be stopped by a worker gets one, however late it is.
  if (tonumber(deadline) or now + 1) <= now and not cancel then return nil, 'has passed its deadline' end
  if open == '' and not step_out(run) then return nil, 'is not at the head' end

  -- Never a number that was given out before, not even by a server that has forgotten it since (docs/adr/0004).
  local fence = again and last_fence or text(math.max((tonumber(last_fence) or 0) + 1, now))
  local till = write_lock(run, worker, fence, lease)
  look_by(now + lease + 1)
  redis.call('HSET', thread_key, 'open', run, 'fence', fence, 'updated', now_text, unpack(mail and {'mail_seen', mail} or {}))
  redis.call('HSET', run_key, 'status', 'running', 'fence', fence, 'worker', worker, 'activation', activation,
    'updated', now_text, unpack(started and {} or {'started', now_text}))

  -- Nothing but commits writes calls and state of a run.
  local new = commits == '0'
  return {fence, till, started or now_text, thread, record, unless(new, 'HGETALL', run_key .. ':calls'),
    unless(new, 'HGETALL', run_key .. ':state'), unless(not stateful, 'HGETALL', base .. 'state'),
    unless(not mail, 'XRANGE', mailbox_key, '-', '+', 'COUNT', 100),
    unless(not seq, 'XRANGE', log_key, mark or '-', '+')}
end
