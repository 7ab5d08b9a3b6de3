--@include thread moves batch
-- Writes the last step and ends the run. ARGV: clock, batch, kind, code, message, then fields of the run_finish event.
-- Returns {"finished" | "again", arrivals, next doorbell or false}, or {"continue", arrivals, false} when mail came in
-- before a natural end: then the step is committed and the same run reads it.
local kind, code, message, event = take(), take(), take(), take_list()
if already_applied() then return arrivals(record.status == 'running' and 'continue' or 'again', false) end
local refusal = check_owner() or check_calls()
if refusal then return refusal end
apply_batch()
if kind == 'natural_end' and record.cancel == '' and redis.call('EXISTS', mailbox_key) == 1 then
  return arrivals('continue', false)
end
end_run(run, kind, code, message, unpack(event))
local bell = hand_over()
return arrivals('finished', bell or false)
