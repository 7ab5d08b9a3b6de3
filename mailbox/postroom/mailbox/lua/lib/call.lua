-- What every script shares: its arguments, the clock, how it refuses, how it reads.
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

-- Fields of a hash by name, empty where unset.
local function read(hash, ...)
  local values = redis.call('HMGET', hash, ...)
  local found = {}
  for i, name in ipairs({...}) do found[name] = values[i] or '' end
  return found
end
