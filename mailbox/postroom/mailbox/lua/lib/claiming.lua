-- Taking a thread for its head run.

-- A whole hash: flat, as Redis tells it, and those of its fields that are wanted by name.
local function read_all(hash, wanted, found)
  local flat = redis.call('HGETALL', hash)
  for i = 1, #flat, 2 do
    local name = flat[i]
    if wanted[name] then found[name] = flat[i + 1] end
  end
  return flat, found
end

local OF_THREAD = {open = true, fence = true, mail = true, seq = true, mark = true}
local OF_RUN = {status = true, worker = true, activation = true, start_at = true, deadline = true, started = true,
  commits = true, cancel = true}

-- What was never written need not be asked for.
local function unless(missing, ...) return missing and {} or redis.call(...) end

-- Raises the fence; the same activation asked for again, because the reply was lost, gets its own claim back. Returns all
-- that the loop needs: {fence, lease_until, when the run was first started, thread, run, calls, run state, thread state,
-- unread mail, log from the last compaction mark}, the hashes as they were; or nothing, and why.
local function claim_run(run, worker, lease, activation)
  local run_key = run_key_of(run)
  -- Made whole, for a table that grows costs three times as much.
  local thread_fields, thread = read_all(thread_key, OF_THREAD, {open = '', fence = nil, mail = nil, seq = nil, mark = nil})
  local run_fields, record = read_all(run_key, OF_RUN, {status = nil, worker = nil, activation = nil, start_at = nil,
    deadline = nil, started = nil, commits = nil, cancel = nil})
  local open = thread.open
  local again = record.status == 'running' and open == run and activation ~= '' and
    record.activation == activation and record.worker == worker

  if not record.status then return nil, 'does not exist or has expired' end
  if record.status ~= 'queued' and not again then return nil, 'is ' .. record.status end
  if open ~= '' and open ~= run then return nil, 'waits for run ' .. open end
  if open == '' and redis.call('ZRANGE', lane_key, 0, 0)[1] ~= run then return nil, 'is not at the head' end
  if (tonumber(record.start_at) or 0) > now then return nil, 'is not due before ' .. record.start_at end
  -- One that is to be stopped by a worker gets one, however late it is.
  if (tonumber(record.deadline) or now + 1) <= now and not record.cancel then return nil, 'has passed its deadline' end

  -- Never a number that was given out before, not even by a server that has forgotten it since (docs/adr/0004).
  local fence = again and thread.fence or text(math.max((tonumber(thread.fence) or 0) + 1, now))
  local till = write_lock(run, worker, fence, lease)
  local started = record.started or now_text
  look_by(till + 1)
  if open == '' then redis.call('ZREM', lane_key, run) end
  redis.call('HSET', thread_key, 'open', run, 'fence', fence, 'mail_seen', thread.mail or '', 'updated', now_text)
  redis.call('HSET', run_key, 'status', 'running', 'fence', fence, 'worker', worker, 'activation', activation,
    'updated', now_text, 'started', started, 'unanswered', '0')

  -- Only commits write calls and state, and only they and a fork the log.
  local new, blank = record.commits == '0', not (thread.fence or thread.seq)
  return {fence, till, started, thread_fields, run_fields, unless(new, 'HGETALL', run_key .. ':calls'),
    unless(new, 'HGETALL', run_key .. ':state'), unless(blank, 'HGETALL', base .. 'state'),
    unless(not thread.mail, 'XRANGE', mailbox_key, '-', '+', 'COUNT', 100),
    unless(not thread.seq, 'XRANGE', log_key, thread.mark or '-', '+')}
end
