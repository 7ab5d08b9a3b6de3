-- One step's writes, whole or not at all: everything is read and checked first, and only then is anything written.
-- ARGV (after the clock): run, fence, commit number, events kept, then the lists run fields, thread fields, messages,
-- calls set and dropped, "clear" or "", run state set and dropped, thread state set and dropped, mail read, events.
local run = take()
local run_key = run_key_of(run)
local fence = take()
local number = tonumber(take())
local max_events = take()

local function take_lists()
  local lists = {}
  for i = 1, tonumber(take()) do lists[i] = take_list() end
  return lists
end

local batch = {
  run_fields = take_list(),
  thread_fields = take_list(),
  messages = take_lists(),
  calls = take_list(),
  calls_dropped = take_list(),
  clear_calls = take() == 'clear',
  run_state = take_list(),
  run_state_dropped = take_list(),
  thread_state = take_list(),
  thread_state_dropped = take_list(),
  read_mail = take_list(),
  events = take_lists(),
}

local record = read(run_key, 'status', 'fence', 'commits', 'events', 'step', 'cancel', 'decisions', 'attempts')
local thread = read(thread_key, 'open', 'fence', 'seq')

-- A retry after a lost reply finds its own number and changes nothing.
local function already_applied()
  return record.fence == fence and number <= (tonumber(record.commits) or 0)
end

local function check_owner()
  if record.status == '' then return refuse('NORUN', 'run ' .. run .. ' does not exist or has expired') end
  if record.status ~= 'running' or thread.open ~= run or thread.fence ~= fence then
    return refuse('FENCED', 'run ' .. run .. ' is ' .. record.status .. ' and the thread is at fence ' .. thread.fence ..
      ', not ' .. fence .. '; this activation is over')
  end
  if number ~= tonumber(record.commits) + 1 then
    return refuse('COMMITGAP', 'run ' .. run .. ' has ' .. record.commits .. ' commits, number ' .. number ..
      ' must wait for its predecessor')
  end
end

local function check_calls()
  local names = {}
  for i = 1, #batch.calls, 2 do
    if string.sub(batch.calls[i], 1, 7) == 'status:' then
      names[#names + 1] = batch.calls[i]
      names[batch.calls[i]] = batch.calls[i + 1]
    end
  end
  if #names == 0 then return nil end
  local olds = redis.call('HMGET', run_key .. ':calls', unpack(names))
  for i, name in ipairs(names) do
    local old, new = olds[i] or 'new', names[name]
    if not CALL[new] or not may_move(CALL, old, new) then
      return refuse('BADMOVE', 'call ' .. string.sub(name, 8) .. ' cannot move from ' .. old .. ' to ' .. new)
    end
  end
end

-- HSET takes pairs and HDEL names; Lua cannot unpack more than a few thousand at once.
local function in_slices(command, key, items)
  for first = 1, #items, 1000 do
    redis.call(command, key, unpack(items, first, math.min(first + 999, #items)))
  end
end

local function apply_batch()
  local seq, events = tonumber(thread.seq) or 0, tonumber(record.events) or 0
  for _, message in ipairs(batch.messages) do
    seq = seq + 1
    redis.call('XADD', log_key, seq .. '-0', 'at', text(now), 'run', run, unpack(message))
  end
  for _, event in ipairs(batch.events) do
    events = events + 1
    redis.call('XADD', run_key .. ':events', 'MAXLEN', '~', max_events, events .. '-0', 'at', text(now), unpack(event))
  end
  in_slices('HSET', run_key, batch.run_fields)
  redis.call('HSET', run_key, 'commits', number, 'events', events, 'updated', text(now))
  in_slices('HSET', thread_key, batch.thread_fields)
  if #batch.messages > 0 then redis.call('HSET', thread_key, 'seq', seq, 'updated', text(now)) end
  if batch.clear_calls then redis.call('DEL', run_key .. ':calls') end
  in_slices('HDEL', run_key .. ':calls', batch.calls_dropped)
  in_slices('HSET', run_key .. ':calls', batch.calls)
  in_slices('HSET', run_key .. ':state', batch.run_state)
  in_slices('HDEL', run_key .. ':state', batch.run_state_dropped)
  in_slices('HSET', base .. 'state', batch.thread_state)
  in_slices('HDEL', base .. 'state', batch.thread_state_dropped)
  if #batch.read_mail > 0 then
    in_slices('XDEL', mailbox_key, batch.read_mail)
    -- An empty stream still costs memory, and unread mail is told by the key's existence.
    if redis.call('XLEN', mailbox_key) == 0 then redis.call('DEL', mailbox_key) end
  end
  thread.seq, record.events = seq, events
end

-- What the loop would otherwise poll for: last sequence number, last event, cancel flag, decisions so far, unread mail.
local function arrivals(outcome, ...)
  return {outcome, tonumber(thread.seq) or 0, tonumber(record.events) or 0, record.cancel,
    tonumber(record.decisions) or 0, redis.call('XRANGE', mailbox_key, '-', '+', 'COUNT', 100), ...}
end
