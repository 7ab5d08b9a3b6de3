--@include thread hold
-- Takes the thread for its head run. ARGV: clock, run, worker, lease. Raises the fence; returns all the loop needs:
-- {fence, lease_until, thread, run, calls, run state, thread state, unread mail, log from the last compaction mark}.
local run, worker, lease = take(), take(), take()
local run_key = run_key_of(run)
local thread_fields, thread = read_all(thread_key)
local run_fields, record = read_all(run_key)

-- Writes fields into a hash and behind those read from it: of two values of a field the last one counts.
local function change(key, fields, pairs)
  redis.call('HSET', key, unpack(pairs))
  for _, word in ipairs(pairs) do fields[#fields + 1] = word end
end

local function nothing(why) return refuse('NOTHING', 'run ' .. run .. ' ' .. why) end

if not record.status then return nothing('does not exist or has expired') end
if record.status ~= 'queued' then return nothing('is ' .. record.status) end
local open = thread.open or ''
if open ~= '' and open ~= run then return nothing('waits for run ' .. open) end
if open == '' and redis.call('ZRANGE', lane_key, 0, 0)[1] ~= run then return nothing('is not at the head') end
if (tonumber(record.start_at) or 0) > now then return nothing('is not due before ' .. record.start_at) end
if (tonumber(record.deadline) or now + 1) <= now then return nothing('has passed its deadline') end

local fence = text((tonumber(thread.fence) or 0) + 1)
local till = write_lock(run, worker, fence, lease)
look_by(till + 1)
redis.call('ZREM', lane_key, run)
change(thread_key, thread_fields, {'open', run, 'fence', fence, 'mail_seen', thread.mail or '', 'updated', now_text})
change(run_key, run_fields, {'status', 'running', 'fence', fence, 'worker', worker, 'updated', now_text,
  'started', record.started or now_text, 'unanswered', '0'})

-- What was never written need not be asked for: only commits write calls and state.
local function unless(missing, ...) return missing and {} or redis.call(...) end

local new = record.commits == '0'
return {fence, till, thread_fields, run_fields, unless(new, 'HGETALL', run_key .. ':calls'),
  unless(new, 'HGETALL', run_key .. ':state'), unless(not thread.fence, 'HGETALL', base .. 'state'),
  unless(not thread.mail, 'XRANGE', mailbox_key, '-', '+', 'COUNT', 100),
  unless(not thread.seq, 'XRANGE', log_key, thread.mark or '-', '+')}
