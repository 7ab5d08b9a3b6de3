-- What a call writes to the keys that all threads share, and the locks it gives up, goes out together at its end: once for
-- a call, however many threads it was about. Until then it is kept here.
local looks, unwatched, unlocked, listed
-- Which of the transitions in this call would write to a key, by their numbers, and the number of the present one.
local writers, present

local function open_shared() looks, unwatched, unlocked, listed, writers, present = {}, {}, {}, {}, {}, 1 end

local function will_write(key)
  writers[key] = writers[key] or {}
  writers[key][present] = true
end

-- An entry of a sorted set that all threads share; the last one of a name counts.
local function list(key, score, name)
  local entries = listed[key] or {}
  entries[#entries + 1] = score
  entries[#entries + 1] = name
  listed[key] = entries
  will_write(key)
end

-- Lua cannot unpack more than a few thousand items at once, and must not find that out halfway.
local MOST_FIELDS = 1000

local function in_slices(command, key, items, first, last)
  for from = first, last, MOST_FIELDS do
    redis.call(command, key, unpack(items, from, math.min(from + MOST_FIELDS - 1, last)))
  end
end

local function names_of(set)
  local names = {}
  for name in pairs(set) do names[#names + 1] = name end
  return names
end

local function write_watch()
  if next(unwatched) then redis.call('ZREM', 'postroom:watch', unpack(names_of(unwatched))) end
  if not next(looks) then return end
  local entries = {}
  for name, time in pairs(looks) do
    entries[#entries + 1] = string.format('%.0f', time)
    entries[#entries + 1] = name
  end
  redis.call('ZADD', 'postroom:watch', 'LT', unpack(entries))
end

-- A call is about a few dozen threads at most, but one of them may have had a thousand runs. A key that cannot be written
-- is the fault of those that would write it: `blame` is told of each and of the error.
local function write_shared(blame)
  local function try(key, ...)
    local well, raised = pcall(...)
    if not well then
      for each in pairs(writers[key]) do blame(each, raised) end
    end
  end
  if next(unlocked) then redis.call('DEL', unpack(names_of(unlocked))) end
  if writers['postroom:watch'] then try('postroom:watch', write_watch) end
  for key, entries in pairs(listed) do try(key, in_slices, 'ZADD', key, entries, 1, #entries) end
end
