-- Settles a try to deliver. KEYS: deliveries, deliveries given up. ARGV: clock or "", id, what went wrong or "", wait before
-- the next try or "" for none, milliseconds that a delivery given up is remembered.
-- Returns "delivered", "later", "given up", or "gone" when it was settled before.
local id, wrong, wait, keep = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local key = 'postroom:delivery:' .. id
if redis.call('ZSCORE', KEYS[1], id) == false then return 'gone' end
if wrong == '' then
  redis.call('ZREM', KEYS[1], id)
  redis.call('DEL', key)
  return 'delivered'
end
redis.call('HSET', key, 'wrong', wrong)
if wait ~= '' then
  redis.call('ZADD', KEYS[1], in_future(wait), id)
  return 'later'
end
redis.call('ZREM', KEYS[1], id)
redis.call('ZADD', KEYS[2], in_future(0), id)
redis.call('PEXPIRE', key, keep)
return 'given up'
