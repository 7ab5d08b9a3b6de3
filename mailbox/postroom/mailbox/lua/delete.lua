-- Deletes an idle thread: messages, state, mail, and every run that left a trace in the log. ARGV: clock. A run that ended
-- before it said anything is in no list of the thread; its record expires by itself. Returns how many runs went.
local open = read(thread_key, 'open').open
local queued = redis.call('ZRANGE', lane_key, 0, 0)[1]
local delayed = redis.call('ZRANGE', timers_key, 0, 0)[1]
local busy = open ~= '' and open or queued or (delayed and string.match(delayed, ' (%S+)$'))
if busy then return refuse('THREADBUSY', 'the thread is busy with run ' .. busy .. '; cancel it first') end
if redis.call('EXISTS', base .. 'outbox') == 1 then
  return refuse('THREADBUSY', 'the thread has errands that are not carried out yet; try again in a moment')
end
if redis.call('EXISTS', thread_key) == 0 then return refuse('NOTHREAD', 'the thread does not exist or has expired') end

local runs = {}
for _, entry in ipairs(redis.call('XRANGE', log_key, '-', '+')) do
  for i = 1, #entry[2], 2 do
    if entry[2][i] == 'run' then runs[entry[2][i + 1]] = true end
  end
end
local last = read(thread_key, 'last').last
if last ~= '' then runs[last] = true end

local count = 0
for run in pairs(runs) do
  local run_key = run_key_of(run)
  local key = redis.call('HGET', run_key, 'idempotency_key')
  if key and redis.call('GET', base .. 'dedupe:run:' .. key) == run then redis.call('DEL', base .. 'dedupe:run:' .. key) end
  redis.call('DEL', run_key, run_key .. ':calls', run_key .. ':state', run_key .. ':outputs', run_key .. ':events', run_key .. ':children', 'postroom:run:' .. run)
  redis.call('ZREM', 'postroom:runs', run)
  redis.call('ZREM', 'postroom:dead', run)
  count = count + 1
end
redis.call('DEL', thread_key, lock_key, timers_key, log_key, mailbox_key, base .. 'state', base .. 'undelivered')
redis.call('ZREM', 'postroom:stranded', thread_id)
unwatch()
redis.call('ZREM', 'postroom:threads', thread_id)
return count
