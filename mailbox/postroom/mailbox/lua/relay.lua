-- Tells events of a child in the journal of its parent. ARGV: clock, run, events kept, then per event a list of its fields.
-- Returns how many it told: none when the parent has ended, for nothing may follow its end.
local run, max_events = take(), take()
local run_key = run_key_of(run)
local status = read(run_key, 'status').status
if status == '' or status == 'done' then return 0 end
local count, number = tonumber(take()), 0
for _ = 1, count do
  local first, last = take_span()
  number = redis.call('HINCRBY', run_key, 'events', 1)
  redis.call('XADD', run_key .. ':events', number .. '-0', 'at', now_text, unpack(ARGV, first, last))
end
if math.floor(number / 100) > math.floor((number - count) / 100) then
  redis.call('XTRIM', run_key .. ':events', 'MAXLEN', '~', max_events)
end
return count
