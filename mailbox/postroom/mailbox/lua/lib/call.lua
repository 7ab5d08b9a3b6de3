-- What every transition shares: its arguments, the clock, how it refuses, how it reads.
-- A library is loaded once and called for ever, so what belongs to one call is set by whoever opens it: `open_call`,
-- `open_thread`, `open_batch`.
local KEYS, ARGV, cursor, now, now_text

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

-- The first argument is the clock. An empty one means the server's own; tests hand one in.
local function open_call(keys, arguments)
  KEYS, ARGV, cursor = keys, arguments, 1
  now = tonumber(arguments[1])
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  now_text = text(now)
end

local function in_future(milliseconds) return text(now + milliseconds) end

local function refuse(code, message) return redis.error_reply(code .. ' ' .. message) end

-- Fields of a hash by name, empty where unset.
local function read(hash, ...)
  local values, names, found = redis.call('HMGET', hash, ...), {...}, {}
  for i = 1, #names do found[names[i]] = values[i] or '' end
  return found
end
