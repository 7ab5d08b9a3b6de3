-- Elects the one sweeper. KEYS: the office, who wants it. ARGV: name, lease, "dispatcher" or "worker"; a name begins with
-- what it is the name of. A dispatcher that finds a worker in office asks for it; a worker that is asked resigns, and none
-- stands for election until a dispatcher has come, or asks no more. Returns 2 for a new sweeper, 1 for the same one, 0 for
-- somebody else or nobody.
local name, lease, kind = ARGV[1], ARGV[2], ARGV[3]
local holder = redis.call('GET', KEYS[1])
if kind == 'worker' and redis.call('EXISTS', KEYS[2]) == 1 then
  if holder == name then redis.call('DEL', KEYS[1]) end
  return 0
end
if holder == name then
  redis.call('PEXPIRE', KEYS[1], lease)
  return 1
end
if holder then
  if kind == 'dispatcher' and string.match(holder, '^%a+') ~= kind then redis.call('SET', KEYS[2], name, 'PX', lease) end
  return 0
end
redis.call('SET', KEYS[1], name, 'PX', lease)
if kind == 'dispatcher' then redis.call('DEL', KEYS[2]) end
return 2
