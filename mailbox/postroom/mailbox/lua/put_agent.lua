-- Stores a version of an agent and makes it the present one. ARGV: clock, agent, expected version or "", spec, by whom,
-- note, versions kept in any case, how long others are kept. Returns {"stored" | "same", number}.
local agent, expected, spec, by, note = take(), take(), take(), take(), take()
local kept, keep = tonumber(take()), tonumber(take())

local present = redis.call('HGET', agents_key, agent) or '0'
if redis.call('HGET', version_key(present), 'spec') == spec then return {'same', tonumber(present)} end
local refusal = check_expected(agent, present, expected)
if refusal then return refusal end

local number = redis.call('INCR', counter_key)
redis.call('HSET', version_key(number), 'agent', agent, 'spec', spec, 'by', by, 'note', note, 'at', now_text)
redis.call('HSET', agents_key, agent, number)
if present ~= '0' then redis.call('HSET', version_key(present), 'replaced', now_text) end

-- What was dropped before lives again with it, as far as it is still there.
local history = history_key(agent)
redis.call('PERSIST', history)
redis.call('ZADD', history, number, number)
local numbers = redis.call('ZRANGE', history, 0, -1)
for place, old in ipairs(numbers) do
  local key = version_key(old)
  redis.call('PERSIST', key)
  -- A run that began with an old version may still be under way.
  local replaced = tonumber(redis.call('HGET', key, 'replaced') or now)
  local outlived = place <= #numbers - kept and now - replaced > keep
  if outlived then redis.call('DEL', key) end
  if outlived or redis.call('EXISTS', key) == 0 then redis.call('ZREM', history, old) end
end
announce(number)
return {'stored', number}
