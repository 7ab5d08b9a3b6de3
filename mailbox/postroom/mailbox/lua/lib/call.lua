-- What every transition shares: its arguments, the clock, how it refuses, how it reads.
-- A library is loaded once and called for ever, so what belongs to one call is set by whoever opens it: `open_call`,
-- `open_thread`, `open_batch`.
local KEYS, ARGV, cursor, now, now_text
-- The server's clock, looked at once in a call.
local server_now

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

-- Lua prints large numbers with an exponent; ids and times must stay digits. Writing a number costs as much as looking for
-- a key, and most of them are small or have just been written.
local SMALL, small, last_number, last_text = 10000, {}, nil, nil

local function text(number)
  if number == last_number then return last_text end
  if small[number] then return small[number] end
  local written = string.format('%.0f', number)
  if number < SMALL then small[number] = written else last_number, last_text = number, written end
  return written
end

-- Entries of streams are numbered by us.
local function entry_id(number) return text(number) .. '-0' end

local function server_time()
  if not server_now then
    local time = redis.call('TIME')
    server_now = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return server_now
end

-- The first argument of a transition is the clock. An empty one means the server's own; tests hand one in.
local function set_clock()
  now = tonumber(take()) or server_time()
  now_text = text(now)
end

local function open_call(keys, arguments)
  KEYS, ARGV, cursor, server_now = keys, arguments, 0, nil
  open_shared()
end

local function append(words, ...)
  local count, more = #words, {...}
  for place = 1, #more do words[count + place] = more[place] end
end

local function in_future(milliseconds) return text(now + milliseconds) end

local function refuse(code, message) return redis.error_reply(code .. ' ' .. message) end

-- The error that a broken key or our own mistake has raised, as a reply: what the transition has written stays written.
local function failure(raised) return type(raised) == 'table' and raised or redis.error_reply('ERR ' .. tostring(raised)) end

-- Fields of a hash by name, empty where unset.
local function read(hash, ...)
  local values, names, found = redis.call('HMGET', hash, ...), {...}, {}
  for i = 1, #names do found[names[i]] = values[i] or '' end
  return found
end
