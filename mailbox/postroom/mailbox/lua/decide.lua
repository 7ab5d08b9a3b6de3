--@include thread machines doorbell moves
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
  if redis.call('HEXISTS', run_key, 'decided:' .. id) == 0 then
    if record.status == 'done' then return refuse('RUNDONE', 'run ' .. run .. ' has ended; nothing is left to decide') end
    local call = redis.call('HGET', calls_key, 'call:' .. target) or target
    local journal = read(calls_key, 'status:' .. call, 'ticket:' .. call, 'expires:' .. call, 'decided:' .. call)
    local ticket = journal['ticket:' .. call]
    if ticket == '' or journal['status:' .. call] ~= 'suspended' then
      return refuse('NOTICKET', 'run ' .. run .. ' has no open ticket ' .. target)
    end
    if ticket == 'decided' or fresh[call] then
      return refuse('DECIDED', 'ticket ' .. target .. ' of run ' .. run .. ' was decided before: ' .. journal['decided:' .. call])
    end
    if ticket ~= 'open' or (tonumber(journal['expires:' .. call]) or now) < now then
      return refuse('EXPIRED', 'ticket ' .. target .. ' of run ' .. run .. ' expired at ' .. journal['expires:' .. call])
    end
    fresh[call] = true
    fresh[#fresh + 1] = {call = call, id = id, action = action, by = by, body = body}
  end
end
if #fresh == 0 then return {'again', record.status, false} end

for _, decision in ipairs(fresh) do
  redis.call('HSET', calls_key, 'ticket:' .. decision.call, 'decided', 'decision:' .. decision.call, decision.body,
    'decided:' .. decision.call, decision.action .. ' ' .. decision.id)
  redis.call('HSET', run_key, 'decided:' .. decision.id, decision.call)
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
