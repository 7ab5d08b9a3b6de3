-- Extends the lease of a running run. ARGV: clock, run, fence, lease. The fence, not the lock, proves the owner: a lease
-- that ran out unnoticed may be renewed as long as nobody took over. Returns {lease_until, cancel flag, decisions, mail}.
local run, fence, lease = take(), take(), take()
local thread = read(thread_key, 'open', 'fence')
local record = read(run_key_of(run), 'status', 'worker', 'cancel', 'decisions')
if thread.open ~= run or thread.fence ~= fence or record.status ~= 'running' then
  return refuse_fenced(run, record.status, thread.fence, fence)
end
return {write_lock(run, record.worker, fence, lease), record.cancel, tonumber(record.decisions) or 0, redis.call('XLEN', mailbox_key)}
