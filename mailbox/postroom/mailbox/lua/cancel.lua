-- Cancels a run in any state. ARGV: clock, run or "" for the thread's open or next run, code, id of the request or "".
-- A request by thread remembers which run it meant, so that a retry does not go on to the next one.
-- Returns {"requested" | "cancelled" | "done", run, next doorbell or false}.
local run, code, request = take(), take(), take()
if run == '' then
  local memory = base .. 'dedupe:cancel:' .. request
  run = request ~= '' and redis.call('GET', memory) or read(thread_key, 'open').open
  if run == '' then run = redis.call('ZRANGE', lane_key, 0, 0)[1] end
  if not run then return refuse('NORUN', 'the thread has no run to cancel') end
  if request ~= '' then redis.call('SET', memory, run, 'PX', read(thread_key, 'keep_dedupe').keep_dedupe) end
end
local status = read(run_key_of(run), 'status').status
if status == '' then return refuse('NORUN', 'run ' .. run .. ' does not exist or has expired') end
if status == 'done' then return {'done', run, false} end
if not stop(run, code) then return {'requested', run, false} end
return {'cancelled', run, hand_over() or false}
