--@include thread machines doorbell moves
-- Cancels a run in any state. ARGV: clock, run or "" for the thread's open or next run, code.
-- Returns {"requested" | "cancelled" | "done", run, next doorbell or false}.
local run, code = take(), take()
if run == '' then
  run = read(thread_key, 'open').open
  if run == '' then run = redis.call('ZRANGE', lane_key, 0, 0)[1] end
  if not run then return refuse('NORUN', 'the thread has no run to cancel') end
end
local status = read(run_key_of(run), 'status').status
if status == '' then return refuse('NORUN', 'run ' .. run .. ' does not exist or has expired') end
if status == 'done' then return {'done', run, false} end
if not stop(run, code) then return {'requested', run, false} end
return {'cancelled', run, hand_over() or false}
