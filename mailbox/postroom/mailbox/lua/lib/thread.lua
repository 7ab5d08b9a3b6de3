-- What every script shares: the clock, the arguments, the keys of one thread and the indexes over all of them.
-- KEYS[1] is postroom:{T}:thread. Every other key is derived here: an interrupt must reach runs its caller cannot know,
-- and an index written by the script that decides can neither miss a run nor name one that was refused (docs/adr/0001).
local thread_key = KEYS[1]
local thread_id = string.sub(thread_key, 11, -9)
local base = string.sub(thread_key, 1, -7)
local log_key, mailbox_key = base .. 'log', base .. 'mailbox'

local cursor = 0
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

-- A list argument is its length, then its items; it is left in ARGV and named by its first and last place there.
local function take_span()
  local first = cursor + 2
  cursor = cursor + 1 + ARGV[cursor + 1]
  return first, cursor
end

-- Lua prints large numbers with an exponent; ids and times must stay digits.
local function text(number) return string.format('%.0f', number) end

-- An empty clock means the server's own; tests hand one in.
local now = tonumber(take())
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local now_text = text(now)

local function refuse(code, message) return redis.error_reply(code .. ' ' .. message) end

-- For a worker that is no longer the owner: another one is, or the run has left it.
local function refuse_fenced(run, status, thread_fence, fence)
  return refuse('FENCED', 'run ' .. run .. ' is ' .. (status ~= '' and status or 'gone') ..
    ' and the thread is at fence ' .. thread_fence .. ', not ' .. fence .. '; this activation is over')
end

local function run_key_of(run) return base .. 'run:' .. run end

-- A whole hash: flat, as Redis tells it, and by name.
local function read_all(hash)
  local flat, found = redis.call('HGETALL', hash), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return flat, found
end

-- Fields of a hash by name, empty where unset.
local function read(hash, ...)
  local values = redis.call('HMGET', hash, ...)
  local found = {}
  for i, name in ipairs({...}) do found[name] = values[i] or '' end
  return found
end
