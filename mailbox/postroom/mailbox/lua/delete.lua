--@include thread machines
-- Deletes an idle thread with everything it holds. ARGV: clock. Returns how many runs went with it.
local open = read(thread_key, 'open').open
if open ~= '' or redis.call('EXISTS', lane_key) == 1 then
  local busy = open ~= '' and open or redis.call('ZRANGE', lane_key, 0, 0)[1]
  return refuse('THREADBUSY', 'the thread is busy with run ' .. busy .. '; cancel it first')
end
if redis.call('EXISTS', thread_key) == 0 then return refuse('NOTHREAD', 'the thread does not exist or has expired') end

local runs = {}
for _, entry in ipairs(redis.call('XRANGE', log_key, '-', '+')) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'run' then runs[entry[2][i + 1]] = true end
  end
end
for _, timer in ipairs(redis.call('ZRANGE', timers_key, 0, -1)) do runs[string.match(timer, ' (%S+)$')] = true end
local last = read(thread_key, 'last').last
if last ~= '' then runs[last] = true end

local count = 0
for run in pairs(runs) do
  local run_key = run_key_of(run)
  local key = redis.call('HGET', run_key, 'idempotency_key')
  if key and redis.call('GET', base .. 'dedupe:run:' .. key) == run then redis.call('DEL', base .. 'dedupe:run:' .. key) end
  redis.call('DEL', run_key, run_key .. ':calls', run_key .. ':state', run_key .. ':events', 'postroom:run:' .. run)
  redis.call('ZREM', 'postroom:runs', run)
  redis.call('ZREM', 'postroom:dead', run)
  count = count + 1
end
redis.call('DEL', thread_key, lock_key, timers_key, log_key, mailbox_key, base .. 'state')
redis.call('ZREM', 'postroom:watch', thread_id)
redis.call('ZREM', 'postroom:threads', thread_id)
return count
