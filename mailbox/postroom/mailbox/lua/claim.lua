--@include call thread hold
-- Takes the thread for its head run. ARGV: clock, run, worker, lease. Raises the fence; returns all the loop needs:
-- {fence, lease_until, thread, run, calls, run state, thread state, unread mail, log from the last compaction mark}.
local run, worker, lease = take(), take(), take()
local run_key = run_key_of(run)
local thread = read(thread_key, 'open', 'fence', 'mark', 'mail')
local record = read(run_key, 'status', 'started', 'start_at', 'deadline')

local function nothing(why) return refuse('NOTHING', 'run ' .. run .. ' ' .. why) end

if record.status == '' then return nothing('does not exist or has expired') end
if record.status ~= 'queued' then return nothing('is ' .. record.status) end
if thread.open ~= '' and thread.open ~= run then return nothing('waits for run ' .. thread.open) end
if thread.open == '' and redis.call('ZRANGE', lane_key, 0, 0)[1] ~= run then return nothing('is not at the head') end
if (tonumber(record.start_at) or 0) > now then return nothing('is not due before ' .. record.start_at) end
if (tonumber(record.deadline) or now + 1) <= now then return nothing('has passed its deadline') end

local fence = text((tonumber(thread.fence) or 0) + 1)
local till = write_lock(run, worker, fence, lease)
look_by(till + 1)
redis.call('ZREM', lane_key, run)
redis.call('HSET', thread_key, 'open', run, 'fence', fence, 'mail_seen', thread.mail, 'updated', now_text)
redis.call('HSET', run_key, 'status', 'running', 'fence', fence, 'worker', worker, 'updated', now_text,
  'started', record.started ~= '' and record.started or now_text, 'unanswered', '0')
local from = thread.mark ~= '' and thread.mark or '-'
return {fence, till, redis.call('HGETALL', thread_key), redis.call('HGETALL', run_key),
  redis.call('HGETALL', run_key .. ':calls'), redis.call('HGETALL', run_key .. ':state'),
  redis.call('HGETALL', base .. 'state'), redis.call('XRANGE', mailbox_key, '-', '+', 'COUNT', 100),
  redis.call('XRANGE', log_key, from, '+')}
