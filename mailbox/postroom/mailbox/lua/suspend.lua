-- Writes a step after which the run waits and gives its worker back. ARGV: clock, batch, reason, wake time or "", then
-- fields of the run_waiting event. Returns {"waiting" | "again", arrivals}, or {"continue", arrivals} when what it would
-- wait for, or a cancel, has arrived meanwhile: then the step is committed and the run goes on.
open_batch(true)
local reason, wake = take(), take()
local event_first, event_last = take_span()
if already_applied() then return arrivals(status == 'running' and 'continue' or 'again') end
local refusal = check_owner() or check_sections()
if refusal then return refusal end
apply_sections()
write_changes()

-- Whether what the run would wait for is there, and when its first open ticket expires.
local function look_around()
  local flat, journal, expiry = redis.call('HGETALL', run_key .. ':calls'), {}, nil
  -- Mail is read between steps, so it is nothing to a run whose calls are open.
  local there = cancel ~= '' or (#flat == 0 and WOKEN_BY_MAIL[reason] and redis.call('EXISTS', mailbox_key) == 1)
  for i = 1, #flat, 2 do journal[flat[i]] = flat[i + 1] end
  for name, status in pairs(journal) do
    local call = string.match(name, '^status:(.*)$')
    if call and status == 'suspended' then
      if journal['decision:' .. call] then there = true end
      local expires = tonumber(journal['expires:' .. call])
      if expires and journal['ticket:' .. call] == 'open' and (not expiry or expires < expiry) then expiry = expires end
    end
  end
  return there, expiry
end

local there, expiry = look_around()
if there then return arrivals('continue') end
-- A ticket expires whether or not its worker thought of waking up for that.
if expiry and (wake == '' or tonumber(wake) > expiry + 1) then wake = text(expiry + 1) end
redis.call('HSET', run_key, 'status', 'waiting', 'waiting', reason, 'wake', wake, 'worker', '', 'updated', now_text)
if wake ~= '' then set_timer(wake, 'wake', run) end
unlock()
local event = emit(run, 'type', 'run_waiting', 'reason', reason, 'wake', wake, unpack(ARGV, event_first, event_last))
if record.webhook ~= '' then owe_delivery(run, event) end
if reason == 'approval' or reason == 'input' then report(run, record, event, '') end
outbox = outbox + owed
if outbox > 0 then look_by(now) end
return arrivals('waiting')
