-- One step's writes, whole or not at all: everything is read and checked first, and only then is anything written.
-- Arguments: run, fence, commit number, events kept, number of sections, then each section as a kind, its
-- length and its items: say (a message), tell (an event), send (an errand), sent (mail and recipient), run, thread, call, state,
-- thread-state, output, child (fields and values), drop-call, drop-state, drop-thread-state, drop-child (names), clear-calls
-- (nothing), read (mail).
local run, run_key, fence, number, number_text, max_events
local kinds, firsts, lasts
local record, status, commits, events, cancel, decisions
local thread, seq, outbox
-- How many errands the thread has had; looked up when there is one more.
local errands
-- Fields of the events that are told, until they are written.
local told
-- Whether the batch puts something into the thread's state.
local writes_state
-- The run's own fields go out with its counters, in one HSET.
local run_first, run_last
-- Nothing but commits writes calls and state of a run, so one whose first commit brings none has none.
local bare

-- `leaves` when the run gives its worker back with this batch: then more must be known of it.
local function open_batch(leaves)
  run, fence, number_text, max_events = take(), take(), take(), take()
  run_key, number = run_key_of(run), tonumber(number_text)
  kinds, firsts, lasts = {}, {}, {}
  for i = 1, tonumber(take()) do
    kinds[i] = take()
    firsts[i], lasts[i] = take_span()
  end
  run_first, run_last, writes_state, told = 1, 0, false, {}
  local of_run, of_thread
  if leaves then
    of_run = redis.call('HMGET', run_key, 'status', 'fence', 'commits', 'events', 'cancel', 'decisions', 'keep',
      'idempotency_key', 'phase', 'webhook', 'reports', 'parent_thread', 'children')
    of_thread = redis.call('HMGET', thread_key, 'open', 'fence', 'seq', 'mail', 'outbox', 'mail_seen', 'keep_thread', 'timed',
      'stateful')
  else
    of_run = redis.call('HMGET', run_key, 'status', 'fence', 'commits', 'events', 'cancel', 'decisions')
    of_thread = redis.call('HMGET', thread_key, 'open', 'fence', 'seq', 'mail', 'outbox')
  end
  -- Spelt out, since a table that is made whole costs a third of one that grows; these run at every step.
  record = {status = of_run[1] or '', fence = of_run[2] or '', events = of_run[4] or '', keep = of_run[7] or '',
    idempotency_key = of_run[8] or '', phase = of_run[9] or '', webhook = of_run[10] or '', reports = of_run[11] or '',
    parent_thread = of_run[12] or '', children = of_run[13] or ''}
  status, commits, events = record.status, tonumber(of_run[3]), tonumber(of_run[4]) or 0
  cancel, decisions, bare = of_run[5] or '', tonumber(of_run[6]) or 0, commits == 0
  thread = {open = of_thread[1] or '', fence = of_thread[2] or '', seq = of_thread[3] or '', mail = of_thread[4] or '',
    mail_seen = of_thread[6] or '', keep_thread = of_thread[7] or '', timed = of_thread[8] or '', stateful = of_thread[9] or ''}
  seq, errands, outbox = tonumber(thread.seq) or 0, nil, tonumber(of_thread[5]) or 0
end

-- A retry after a lost reply finds its own number and changes nothing.
local function already_applied() return record.fence == fence and number <= commits end

local function check_owner()
  if status == '' then return refuse('NORUN', 'run ' .. run .. ' does not exist or has expired') end
  if status ~= 'running' or thread.open ~= run or thread.fence ~= fence then
    return refuse_fenced(run, status, thread.fence ~= '' and thread.fence or '0', fence)
  end
  if number ~= commits + 1 then
    return refuse('COMMITGAP', 'run ' .. run .. ' has ' .. commits .. ' commits, number ' .. number ..
      ' must wait for its predecessor')
  end
end

local function check_call(name, new, cleared)
  local old = not cleared and redis.call('HGET', run_key .. ':calls', name) or 'new'
  if not CALL_MACHINE[new] or not (old == new or CALL_MACHINE[old][new]) then
    return refuse('BADMOVE', 'call ' .. string.sub(name, 8) .. ' cannot move from ' .. old .. ' to ' .. new)
  end
end

local function check_sections()
  for i, kind in ipairs(kinds) do
    if kind == 'call' then
      for place = firsts[i], lasts[i], 2 do
        local refusal = string.sub(ARGV[place], 1, 7) == 'status:'
          and check_call(ARGV[place], ARGV[place + 1], kinds[1] == 'clear-calls')
        if refusal then return refusal end
      end
    elseif (kind == 'say' or kind == 'tell' or kind == 'run') and lasts[i] - firsts[i] >= MOST_FIELDS then
      return refuse('TOOMANY', 'a message, event or the record of run ' .. run .. ' has more than ' .. MOST_FIELDS .. ' fields')
    end
  end
end

local function put(command, key, first, last) in_slices(command, key, ARGV, first, last) end

local function read_mail(first, last)
  put('XDEL', mailbox_key, first, last)
  -- An empty stream still costs memory, and unread mail is told by the key's existence.
  if redis.call('XLEN', mailbox_key) == 0 then redis.call('DEL', mailbox_key) end
end

local function write_told()
  write_events(run_key, events, told)
  told = {}
end

local function gather_event(first, last)
  if #told + last - first >= MOST_FIELDS then write_told() end
  events = events + 1
  for place = first, last do told[#told + 1] = ARGV[place] end
end

local function apply(kind, first, last)
  if kind == 'tell' then gather_event(first, last)
  elseif kind == 'say' then
    seq = seq + 1
    redis.call('XADD', log_key, entry_id(seq), 'at', now_text, 'run', run, unpack(ARGV, first, last))
  elseif kind == 'run' then run_first, run_last = first, last
  elseif kind == 'call' then put('HSET', run_key .. ':calls', first, last)
  elseif kind == 'send' then
    errands = (errands or tonumber(read(thread_key, 'errands').errands) or 0) + 1
    outbox = outbox + 1
    redis.call('XADD', base .. 'outbox', entry_id(errands), 'at', now_text, 'by', run, unpack(ARGV, first, last))
  elseif kind == 'sent' then
    local keep = read(thread_key, 'keep_dedupe').keep_dedupe
    for i = first, last, 2 do
      redis.call('SET', 'postroom:sent:' .. ARGV[i], thread_id .. '\n' .. ARGV[i + 1], 'PX', keep)
    end
  elseif kind == 'clear-calls' then redis.call('DEL', run_key .. ':calls')
  elseif kind == 'read' then read_mail(first, last)
  elseif kind == 'state' then put('HSET', run_key .. ':state', first, last)
  elseif kind == 'output' then put('HSET', run_key .. ':outputs', first, last)
  elseif kind == 'thread-state' then
    writes_state = true
    put('HSET', base .. 'state', first, last)
  elseif kind == 'thread' then put('HSET', thread_key, first, last)
  elseif kind == 'drop-call' then put('HDEL', run_key .. ':calls', first, last)
  elseif kind == 'child' then put('HSET', run_key .. ':children', first, last)
  elseif kind == 'drop-child' then put('HDEL', run_key .. ':children', first, last)
  elseif kind == 'drop-state' then put('HDEL', run_key .. ':state', first, last)
  elseif kind == 'drop-thread-state' then put('HDEL', base .. 'state', first, last)
  end
end

local function apply_sections()
  local before = events
  for i, kind in ipairs(kinds) do
    apply(kind, firsts[i], lasts[i])
    bare = bare and kind ~= 'call' and kind ~= 'state' and kind ~= 'output'
  end
  trim_events(run_key, before, events, max_events)
end

-- What the step leaves to be written into the hashes of the run and of the thread.
local function changes() return {'commits', number_text, unpack(ARGV, run_first, run_last)} end
local function thread_changes()
  local fields = text(seq) ~= thread.seq and {'seq', text(seq)} or {}
  if writes_state then append(fields, 'stateful', '1') end
  if errands then append(fields, 'errands', text(errands), 'outbox', text(outbox)) end
  return fields
end

local function write_changes()
  write_told()
  redis.call('HSET', run_key, 'events', text(events), 'updated', now_text, unpack(changes()))
  redis.call('HSET', thread_key, 'updated', now_text, unpack(thread_changes()))
end

-- A field of the run as it is after this batch, or ''.
local function after(name)
  for place = run_first, run_last, 2 do
    if ARGV[place] == name then return ARGV[place + 1] end
  end
  return record[name]
end

-- A thread that never got mail need not be asked for any.
local function mail_waits() return thread.mail ~= '' and redis.call('EXISTS', mailbox_key) == 1 end

-- What the loop would otherwise poll for: last sequence number, last event, cancel flag, decisions so far, unread mail,
-- errands to be carried out.
local function arrivals(outcome, ...)
  local mail = thread.mail ~= '' and redis.call('XRANGE', mailbox_key, '-', '+', 'COUNT', 100) or {}
  return {outcome, seq, events, cancel, decisions, mail, outbox, ...}
end
