--@include call thread hold
-- Takes the thread for its head run. ARGV: clock, run, worker, lease, the worker's name for this activation or "". Raises
-- the fence; the same activation asked for again, because the reply was lost, gets its own claim back. Returns all that
-- the loop needs: {fence, lease_until, thread, run, calls, run state, thread state, unread mail, log from the last
-- compaction mark}.
local run, worker, lease, activation = take(), take(), take(), take()
local run_key = run_key_of(run)
local thread_fields, thread = read_all(thread_key)
local run_fields, record = read_all(run_key)
local again = record.status == 'running' and thread.open == run and activation ~= '' and
  record.activation == activation and record.worker == worker

-- Writes fields into a hash and behind those read from it: of two values of a field the last one counts.
local function change(key, fields, pairs)
  redis.call('HSET', key, unpack(pairs))
  for _, word in ipairs(pairs) do fields[#fields + 1] = word end
end

local function nothing(why) return refuse('NOTHING', 'run ' .. run .. ' ' .. why) end

if not record.status then return nothing('does not exist or has expired') end
if record.status ~= 'queued' and not again then return nothing('is ' .. record.status) end
local open = thread.open or ''
if open ~= '' and open ~= run then return nothing('waits for run ' .. open) end
if open == '' and redis.call('ZRANGE', lane_key, 0, 0)[1] ~= run then return nothing('is not at the head') end
if (tonumber(record.start_at) or 0) > now then return nothing('is not due before ' .. record.start_at) end
if (tonumber(record.deadline) or now + 1) <= now and not record.cancel then return nothing('has passed its deadline') end

-- Never a number that was given out before, not even by a server that has forgotten it since (docs/adr/0004).
local fence = again and thread.fence or text(math.max((tonumber(thread.fence) or 0) + 1, now))
local till = write_lock(run, worker, fence, lease)
look_by(till + 1)
redis.call('ZREM', lane_key, run)
change(thread_key, thread_fields, {'open', run, 'fence', fence, 'mail_seen', thread.mail or '', 'updated', now_text})
change(run_key, run_fields, {'status', 'running', 'fence', fence, 'worker', worker, 'activation', activation,
  'updated', now_text, 'started', record.started or now_text, 'unanswered', '0'})

-- What was never written need not be asked for: only commits write calls and state, and only they and a fork the log.
local function unless(missing, ...) return missing and {} or redis.call(...) end

local new = record.commits == '0'
return {fence, till, thread_fields, run_fields, unless(new, 'HGETALL', run_key .. ':calls'),
  unless(new, 'HGETALL', run_key .. ':state'), unless(not (thread.fence or thread.seq), 'HGETALL', base .. 'state'),
  unless(not thread.mail, 'XRANGE', mailbox_key, '-', '+', 'COUNT', 100),
  unless(not thread.seq, 'XRANGE', log_key, thread.mark or '-', '+')}
