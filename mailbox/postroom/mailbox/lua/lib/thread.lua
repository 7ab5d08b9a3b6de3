-- What every script shares: the clock, the arguments, the keys of one thread and the indexes over all of them.
-- KEYS[1] is postroom:{T}:thread. Every other key is derived here: an interrupt must reach runs its caller cannot know,
-- and an index written by the script that decides can neither miss a run nor name one that was refused (docs/adr/0001).
local thread_key = KEYS[1]
local thread_id = string.sub(thread_key, 11, -9)
local base = string.sub(thread_key, 1, -7)
local lock_key, lane_key, timers_key = base .. 'lock', base .. 'lane', base .. 'timers'
local log_key, mailbox_key = base .. 'log', base .. 'mailbox'

local cursor = 0
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

-- A list argument is its length, then its items.
local function take_list()
  local length = tonumber(take())
  local items = {}
  for i = 1, length do items[i] = ARGV[cursor + i] end
  cursor = cursor + length
  return items
end

-- Lua prints large numbers with an exponent; ids and times must stay digits.
local function text(number) return string.format('%.0f', number) end

-- An empty clock means the server's own; tests hand one in.
local now = tonumber(take())
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local function refuse(code, message) return redis.error_reply(code .. ' ' .. message) end

local function run_key_of(run) return base .. 'run:' .. run end

local function read(hash, ...)
  local values = redis.call('HMGET', hash, ...)
  local found = {}
  for i, name in ipairs({...}) do found[name] = values[i] or '' end
  return found
end

-- Somebody must look at the thread by then. An earlier look stays; only a look itself, or idleness, takes one away.
local function look_by(time) redis.call('ZADD', 'postroom:watch', 'LT', text(time), thread_id) end

local function enlist(run)
  redis.call('SET', 'postroom:run:' .. run, thread_id)
  redis.call('ZADD', 'postroom:runs', text(now), run)
  redis.call('ZADD', 'postroom:threads', text(now), thread_id)
end

-- The lock says who works on the thread; it is alive up to and including lease_until.
local function read_lock()
  local value = redis.call('GET', lock_key)
  if not value then return nil end
  local run, worker, fence, till = string.match(value, '^(%S+) (%S+) (%d+) (%d+)$')
  return {run = run, worker = worker, fence = fence, till = tonumber(till)}
end

local function alive(lock) return lock and now <= lock.till end

-- A wake-up for the one worker that holds the thread; the fact itself is already in a key.
local function tell(lock, word)
  if alive(lock) then
    redis.call('PUBLISH', 'postroom:control:' .. lock.worker, word .. ' ' .. lock.run)
  end
end

-- The event's number is its entry id, so a reader notices at once when entries are missing.
local function emit(run, ...)
  local number = redis.call('HINCRBY', run_key_of(run), 'events', 1)
  redis.call('XADD', run_key_of(run) .. ':events', number .. '-0', 'at', text(now), ...)
end

local function append_log(...)
  local seq = redis.call('HINCRBY', thread_key, 'seq', 1)
  redis.call('XADD', log_key, seq .. '-0', 'at', text(now), ...)
end
