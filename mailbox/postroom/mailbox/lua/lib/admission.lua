-- How a queued run finds its place: a run that waits for somebody gives way to newer words, unless the caller said not to.

local function give_way(on_waiting)
  local open = read(thread_key, 'open').open
  if open ~= '' and on_waiting == 'supersede' and redis.call('HGET', run_key_of(open), 'status') == 'waiting' then
    end_cancelled(open, 'superseded')
    return open
  end
  return nil
end

-- Raises the epoch: every queued run of the old one is superseded, the open one is asked to stop.
local function interrupt(code)
  local epoch = redis.call('HINCRBY', thread_key, 'epoch', 1)
  local ended = {}
  for _, queued in ipairs(redis.call('ZRANGE', lane_key, 0, -1)) do ended[#ended + 1] = queued end
  for _, timer in ipairs(redis.call('ZRANGE', timers_key, 0, -1)) do
    local delayed = string.match(timer, '^start (%S+)$')
    if delayed and delayed ~= read(thread_key, 'open').open then ended[#ended + 1] = delayed end
  end
  for _, queued in ipairs(ended) do end_cancelled(queued, 'superseded') end
  local open = read(thread_key, 'open').open
  if open ~= '' and stop(open, code) then ended[#ended + 1] = open end
  return epoch, open, ended
end
