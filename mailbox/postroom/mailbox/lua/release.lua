-- Gives a running run back to the queue. ARGV: clock, run, fence, reason, "charge" or "", start time or "", attempts
-- allowed. A drain charges nothing; a failed attempt is charged, may be delayed, and the last one ends the run.
-- Returns {"queued" | "done" | "again", doorbell or false}.
local run, fence, reason, charge, start_at, max_attempts = take(), take(), take(), take() == 'charge', take(), take()
local run_key = run_key_of(run)
local thread = read(thread_key, 'open', 'fence')
local record = read(run_key, 'status', 'fence', 'attempts', 'cancel', 'released', 'remote')
if record.released == fence then return {'again', false} end
if thread.open ~= run or thread.fence ~= fence or record.status ~= 'running' then
  return refuse_fenced(run, record.status, thread.fence, fence)
end
redis.call('HSET', run_key, 'released', fence)
unlock()
if record.cancel ~= '' and record.remote == '' then
  end_cancelled(run, record.cancel)
  return {'done', hand_over() or false}
end
local attempts = tonumber(record.attempts) + (charge and 1 or 0)
redis.call('HSET', run_key, 'attempts', attempts)
if charge and attempts >= tonumber(max_attempts) then
  dead_letter(run, 'attempts_exhausted', 'attempt ' .. attempts .. ' failed: ' .. reason)
  return {'done', hand_over() or false}
end
requeue(run, reason, attempts)
if start_at ~= '' then
  redis.call('HSET', run_key, 'start_at', start_at)
  set_timer(start_at, 'start', run)
  return {'queued', false}
end
return {'queued', ring(run)}
