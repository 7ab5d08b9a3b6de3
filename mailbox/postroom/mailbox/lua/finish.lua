-- Writes the last step and ends the run. ARGV: clock, batch, kind, code, message, then fields of the run_finish event.
-- Returns {"finished" | "again", arrivals, next doorbell or false}, or {"continue", arrivals, false} when mail came in
-- before a natural end: then the step is committed and the same run reads it.
open_batch(true)
local kind, code, message = take(), take(), take()
local event_first, event_last = take_span()
if already_applied() then return arrivals(status == 'running' and 'continue' or 'again', false) end
local refusal = check_owner() or check_sections()
if refusal then return refusal end
apply_sections()
if kind == 'natural_end' and cancel == '' and mail_waits() then
  write_changes()
  return arrivals('continue', false)
end
record.open, record.events, record.phase, record.bare = true, events, after('phase'), bare
record.children, record.timed = after('children'), thread.timed
record.changes, record.thread_changes, record.told = changes(), thread_changes(), told
end_run(run, record, kind, code, message, unpack(ARGV, event_first, event_last))
-- What no retry would mend is for an operator to look at, like what was retried in vain.
if kind == 'error' then list('postroom:dead', now_text, run) end
-- Mail that is left is for the next run.
thread.open, thread.outbox, thread.seq = '', outbox + owed, seq > 0 and seq or ''
if writes_state then thread.stateful = '1' end
if record.reports ~= '' then thread.mail_seen = thread.mail end
if thread.outbox > 0 then look_by(now) end
return {'finished', seq, events, cancel, decisions, {}, thread.outbox, hand_over(thread) or false}
