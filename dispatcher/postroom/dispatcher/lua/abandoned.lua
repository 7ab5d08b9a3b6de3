-- Drops started doorbells whose worker stopped extending them. Anybody else's jobs on the same queue are RQ's own business.
-- KEYS: started registry. ARGV: abandoned up to (seconds), how a doorbell's description begins. Returns how many it dropped.
local dropped = 0
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)) do
  local job = string.match(entry, '^(.*):[^:]*$')
  local description = job and redis.call('HGET', 'rq:job:' .. job, 'description')
  if not description or string.sub(description, 1, #ARGV[2]) == ARGV[2] then
    redis.call('ZREM', KEYS[1], entry)
    if job then redis.call('DEL', 'rq:job:' .. job, 'rq:executions:' .. job, 'rq:execution:' .. entry) end
    dropped = dropped + 1
  end
end
return dropped
