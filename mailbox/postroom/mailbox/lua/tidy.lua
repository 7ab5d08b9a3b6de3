-- Forgets listed names whose record has expired. KEYS: listing. Arguments: clock, scores up to, at most, key
-- before, key after.
-- A name that is still alive is listed as seen now, so the next call does not meet it again. Returns how many it met.
local names = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[2], 'LIMIT', 0, ARGV[3])
for _, name in ipairs(names) do
  if redis.call('EXISTS', ARGV[4] .. name .. ARGV[5]) == 1 then
    redis.call('ZADD', KEYS[1], now_text, name)
  else
    redis.call('ZREM', KEYS[1], name)
  end
end
return #names
