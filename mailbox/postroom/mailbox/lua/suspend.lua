--@include thread machines doorbell moves batch
-- Writes a step after which the run waits and gives its worker back. ARGV: clock, batch, reason, wake time or "", then
-- fields of the run_waiting event. Returns {"waiting" | "again", arrivals}, or {"continue", arrivals} when what it would
-- wait for, or a cancel, has arrived meanwhile: then the step is committed and the run goes on.
local reason, wake = take(), take()
local event_first, event_last = take_span()
if already_applied() then return arrivals(status == 'running' and 'continue' or 'again') end
local refusal = check_owner() or check_calls()
if refusal then return refusal end
apply_batch()

local function arrived()
  if cancel ~= '' then return true end
  if WOKEN_BY_MAIL[reason] and redis.call('EXISTS', mailbox_key) == 1 then return true end
  local flat = redis.call('HGETALL', run_key .. ':calls')
  local decided = {}
  for i = 1, #flat, 2 do
    local call = string.match(flat[i], '^decision:(.*)$')
    if call then decided[call] = true end
  end
  for i = 1, #flat, 2 do
    local call = string.match(flat[i], '^status:(.*)$')
    if call and decided[call] and flat[i + 1] == 'suspended' then return true end
  end
  return false
end

if arrived() then return arrivals('continue') end
redis.call('HSET', run_key, 'status', 'waiting', 'waiting', reason, 'wake', wake, 'worker', '', 'updated', now_text)
if wake ~= '' then
  redis.call('ZADD', timers_key, wake, 'wake ' .. run)
  look_by(wake)
end
redis.call('DEL', lock_key)
emit(run, 'type', 'run_waiting', 'reason', reason, 'wake', wake, unpack(ARGV, event_first, event_last))
return arrivals('waiting')
