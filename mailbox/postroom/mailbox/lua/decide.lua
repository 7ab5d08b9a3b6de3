-- Records decisions, all or none. ARGV: clock, run, then per decision a list: target, id, action, by, body.
-- The first decision for a ticket wins; the same one again changes nothing.
-- Returns {"accepted" | "again", run status, doorbell or false}.
local run = take()
local run_key, calls_key = run_key_of(run), run_key_of(run) .. ':calls'
local record = read(run_key, 'status', 'attempts')
if record.status == '' then return refuse('NORUN', 'run ' .. run .. ' does not exist or has expired') end

local fresh = {}
for i = 1, tonumber(take()) do
  local target, id, action, by, body = unpack(ARGV, take_span())
  local earlier = redis.call('HGET', run_key, 'decided:' .. id)
  if earlier and earlier ~= target then
    return refuse('DECIDED', 'decision ' .. id .. ' of run ' .. run .. ' was given for ' .. earlier .. '; use another id')
  end
  if not earlier then
    if record.status == 'done' then return refuse('RUNDONE', 'run ' .. run .. ' has ended; nothing is left to decide') end
    -- A call id comes first; a ticket id counts only while it is the call's present ticket.
    local call = target
    if redis.call('HEXISTS', calls_key, 'ticket:' .. call) == 0 then
      call = redis.call('HGET', calls_key, 'call:' .. target) or target
    end
    local journal = read(calls_key, 'status:' .. call, 'ticket:' .. call, 'ticket_id:' .. call, 'expires:' .. call,
      'decided:' .. call, 'key:' .. call)
    local ticket = journal['ticket:' .. call]
    local names_it = target == call or target == journal['ticket_id:' .. call]
    if ticket == '' or journal['status:' .. call] ~= 'suspended' or not names_it then
      return refuse('NOTICKET', 'run ' .. run .. ' has no open ticket ' .. target)
    end
    if ticket == 'decided' or fresh[call] then
      return refuse('DECIDED', 'ticket ' .. target .. ' of run ' .. run .. ' was decided before: ' .. journal['decided:' .. call])
    end
    if ticket ~= 'open' or (tonumber(journal['expires:' .. call]) or now) < now then
      return refuse('EXPIRED', 'ticket ' .. target .. ' of run ' .. run .. ' expired at ' .. journal['expires:' .. call])
    end
    if action == 'allow_always' and journal['key:' .. call] == '' then
      return refuse('NOKEY', 'ticket ' .. target .. ' of run ' .. run .. ' has no action key to remember; use allow_once')
    end
    fresh[call] = true
    fresh[#fresh + 1] = {call = call, target = target, id = id, action = action, by = by, body = body}
  end
end
if #fresh == 0 then return {'again', record.status, false} end

for _, decision in ipairs(fresh) do
  redis.call('HSET', calls_key, 'ticket:' .. decision.call, 'decided', 'decision:' .. decision.call, decision.body,
    'decided:' .. decision.call, decision.action .. ' ' .. decision.id)
  redis.call('HSET', run_key, 'decided:' .. decision.id, decision.target)
  redis.call('HINCRBY', run_key, 'decisions', 1)
  emit(run, 'type', 'decision_received', 'id', decision.id, 'call', decision.call, 'action', decision.action,
    'by', decision.by)
end
if record.status == 'waiting' then
  requeue(run, 'decision', record.attempts)
  return {'accepted', 'queued', ring(run)}
end
tell(read_lock(), 'decision')
return {'accepted', record.status, false}
