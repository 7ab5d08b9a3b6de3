-- Lets a request to a model go, or says how long to wait. KEYS: limit. ARGV: clock, requests and tokens per minute (0 = no
-- limit), tenant, ticket, tokens it needs, longest wait, after how long a silent place is lost. Returns 0 or milliseconds.
local MINUTE = 60000
local bucket, queue, seen, tenants = KEYS[1], KEYS[1] .. ':queue', KEYS[1] .. ':seen', KEYS[1] .. ':tenants'
local limits = {requests = tonumber(ARGV[2]), tokens = tonumber(ARGV[3])}
local tenant, ticket, longest, forget = ARGV[4], ARGV[5], tonumber(ARGV[7]), tonumber(ARGV[8])
local place = ticket .. ' ' .. ARGV[6]

-- What a request takes of each bucket. More than a full one can never be had, so that much has to do.
local function needs(tokens)
  return {requests = 1, tokens = math.min(tonumber(tokens), limits.tokens)}
end

for _, gone in ipairs(redis.call('ZRANGEBYSCORE', seen, '-inf', '(' .. (now - forget))) do
  redis.call('ZREM', seen, gone)
  redis.call('ZREM', queue, gone)
end

-- The levels as of now: a bucket is full at first and refills all the time.
local stored = redis.call('HMGET', bucket, 'at', 'turn')
local elapsed, turn = math.max(0, now - (tonumber(stored[1]) or now)), tonumber(stored[2]) or 0
local level = {}
for name, limit in pairs(limits) do
  local left = tonumber(redis.call('HGET', bucket, name) or limit)
  level[name] = math.min(limit, left + elapsed * limit / MINUTE)
end

-- A newcomer stands behind its tenant's last request, by what that cost, but never before whoever went last.
local mine = needs(ARGV[6])
local start = tonumber(redis.call('ZSCORE', queue, place) or '')
if not start then
  start = math.max(turn, tonumber(redis.call('HGET', tenants, tenant) or '') or 0)
  local share = 0
  for name, limit in pairs(limits) do
    if limit > 0 then share = math.max(share, mine[name] / limit) end
  end
  redis.call('ZADD', queue, string.format('%.17g', start), place)
  redis.call('HSET', tenants, tenant, string.format('%.17g', start + share))
end

-- It may go when there is enough for itself and for everybody before it: nobody waits for a turn somebody sleeps through.
local wanted = {requests = 0, tokens = 0}
for _, each in ipairs(redis.call('ZRANGE', queue, 0, redis.call('ZRANK', queue, place))) do
  local theirs = needs(string.match(each, ' (%d+)$'))
  for name in pairs(wanted) do wanted[name] = wanted[name] + theirs[name] end
end
local wait = 0
for name, limit in pairs(limits) do
  -- A thousandth of a millisecond is what adding fractions may cost, not somebody's turn.
  if limit > 0 then wait = math.max(wait, math.ceil((wanted[name] - level[name]) * MINUTE / limit - 0.001)) end
end

if wait > 0 then
  redis.call('ZADD', seen, now, place)
  wait = math.min(wait, longest)
else
  for name in pairs(level) do level[name] = level[name] - mine[name] end
  redis.call('ZREM', queue, place)
  redis.call('ZREM', seen, place)
  turn = math.max(turn, start)
  if redis.call('EXISTS', queue) == 0 then
    redis.call('DEL', tenants)
    turn = 0
  end
end
redis.call('HSET', bucket, 'at', now, 'turn', string.format('%.17g', turn),
  'requests', string.format('%.17g', level.requests), 'tokens', string.format('%.17g', level.tokens))
-- After two minutes in which nobody asked all buckets are full and nobody waits.
for _, key in ipairs({bucket, queue, seen, tenants}) do redis.call('PEXPIRE', key, 2 * MINUTE) end
return wait
