-- Tells events of a child in the journal of its parent. ARGV: clock, run, events kept, then per event a list of its fields.
-- Returns how many it told: none when the parent has ended, for nothing may follow its end.
local run, max_events = take(), take()
local run_key = run_key_of(run)
local status = read(run_key, 'status').status
if status == '' or status == 'done' then return 0 end
local count, told = tonumber(take()), {}
if count == 0 then return 0 end
local number = redis.call('HINCRBY', run_key, 'events', count)
for i = 1, count do
  local first, last = take_span()
  for place = first, last do told[#told + 1] = ARGV[place] end
  if i == count or #told >= MOST_FIELDS then
    write_events(run_key, number - count + i, told)
    told = {}
  end
end
trim_events(run_key, number - count, number, max_events)
return count
