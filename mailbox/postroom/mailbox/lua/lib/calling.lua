-- How a transition is called: by itself, or several of them in one go.

-- Whatever goes wrong in the middle, what all threads share learns of what was written until then.
local function perform(name)
  local well, reply = pcall(transitions[name])
  if well then return reply end
  return failure(reply)
end

local function alone(keys, arguments, name)
  open_call(keys, arguments)
  set_clock()
  local reply = perform(name)
  write_shared(function(_, raised) reply = failure(raised) end)
  return reply
end

local function on_thread(keys, arguments, name)
  open_thread(keys[1])
  return alone(keys, arguments, name)
end

-- Transitions of threads that leave together: for each its name, how many arguments it has, its thread's key and these
-- arguments, the clock first. Each has a reply or an error of its own; nothing of one depends on another.
local function together(arguments)
  open_call({}, arguments)
  local replies = {}
  while cursor < #arguments do
    local name, count = take(), take()
    local last = cursor + 1 + count
    open_thread(take())
    set_clock()
    replies[present] = perform(name)
    cursor, present = last, present + 1
  end
  write_shared(function(each, raised) replies[each] = failure(raised) end)
  return replies
end
