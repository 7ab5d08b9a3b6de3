-- The doorbell: an RQ job that says "run R on thread T wants a worker", written in RQ's own layout so that `rq info`, the
-- dashboards and the stock `rq worker` all understand it. The script that makes a run wait for a worker rings in the same
-- breath, so no crash can come between (docs/adr/0003). It may still be lost by whoever takes it: hence the look.

-- RQ writes times as ISO 8601; Redis' Lua knows no calendar, so the date is counted out from the days since 1970.
local function date_of(days)
  local shifted = days + 719468
  local era = math.floor(shifted / 146097)
  local day_of_era = shifted - era * 146097
  local year_of_era = math.floor((day_of_era - math.floor(day_of_era / 1460) + math.floor(day_of_era / 36524)
    - math.floor(day_of_era / 146096)) / 365)
  local day_of_year = day_of_era - (365 * year_of_era + math.floor(year_of_era / 4) - math.floor(year_of_era / 100))
  local month = math.floor((5 * day_of_year + 2) / 153)
  local day = day_of_year - math.floor((153 * month + 2) / 5) + 1
  month = month < 10 and month + 3 or month - 9
  local year = year_of_era + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02d', year, month, day)
end

-- A day is long, so its date is kept.
local today, date

local function iso(milliseconds)
  local seconds = math.floor(milliseconds / 1000)
  local days, rest = math.floor(seconds / 86400), seconds % 86400
  if days ~= today then today, date = days, date_of(days) end
  return string.format('%sT%02d:%02d:%02d.%03d000Z', date, math.floor(rest / 3600), math.floor(rest % 3600 / 60), rest % 60,
    milliseconds % 1000)
end

local function knock(run, queue, number)
  local job = run .. '-' .. number
  local at = iso(now)
  redis.call('HSET', 'rq:job:' .. job, 'status', 'queued', 'origin', queue, 'created_at', at, 'enqueued_at', at,
    'data', '["' .. JOB .. '", null, [' .. cjson.encode(thread_id) .. ', "' .. run .. '"], {}]',
    'description', JOB .. ' ' .. run, 'timeout', '-1', 'result_ttl', '0', 'failure_ttl', '86400')
  -- Whoever put the first job into the queue has made it known; the more lie in front, the longer an answer may take.
  local length = redis.call('RPUSH', 'rq:queue:' .. queue, job)
  if length == 1 then redis.call('SADD', 'rq:queues', 'rq:queue:' .. queue) end
  look_by(now + RING_AGAIN + length - 1)
end

-- Rings for a run that waits for a worker; each ring is a job of its own. Returns run, queue, how often it has rung.
local function ring(run)
  local number = redis.call('HINCRBY', run_key_of(run), 'rings', 1)
  redis.call('HSET', run_key_of(run), 'rung', now_text)
  local queue = redis.call('HGET', run_key_of(run), 'queue')
  knock(run, queue, number)
  return {run, queue, text(number)}
end
