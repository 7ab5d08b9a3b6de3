-- Writes RQ's bookkeeping of answered doorbells: they leave no result, so nothing of them stays but the worker's count.
-- KEYS: worker, started registry. ARGV: entries. Returns how many were ours.
local ours, jobs = {}, {}
for i, since in ipairs(redis.call('ZMSCORE', KEYS[2], unpack(ARGV))) do
  -- Somebody who took us for dead may have dropped or requeued it meanwhile; then it is no longer ours to delete.
  if since then
    ours[#ours + 1] = ARGV[i]
    jobs[#jobs + 1] = 'rq:job:' .. string.match(ARGV[i], '^(.*):[^:]*$')
  end
end
if #ours > 0 then
  redis.call('ZREM', KEYS[2], unpack(ours))
  redis.call('DEL', unpack(jobs))
  redis.call('HINCRBY', KEYS[1], 'successful_job_count', #ours)
end
return #ours
