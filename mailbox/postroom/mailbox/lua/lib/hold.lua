-- Who holds the thread, who is next, and by when somebody must look.

-- Somebody must look at the thread by then. An earlier look stays; only a look itself, or idleness, takes one away.
local function look_by(time)
  looks[thread_id] = math.min(time, looks[thread_id] or time)
  will_write('postroom:watch')
end

local function unwatch()
  unwatched[thread_id], looks[thread_id] = true, nil
  will_write('postroom:watch')
end

-- Something falls due on the thread: `start`, `wake` or `deadline` of a run. Most threads never have a timer, so those that
-- had one say so and the others need not be asked.
local function set_timer(time, what, run)
  redis.call('ZADD', timers_key, time, what .. ' ' .. run)
  redis.call('HSET', thread_key, 'timed', '1')
  look_by(tonumber(time))
end

-- The lock says who works on the thread; it is alive up to and including lease_until.
local function read_lock()
  local value = not unlocked[lock_key] and redis.call('GET', lock_key)
  if not value then return nil end
  local run, worker, fence, till = string.match(value, '^(%S+) (%S+) (%d+) (%d+)$')
  return {run = run, worker = worker, fence = fence, till = tonumber(till)}
end

local function write_lock(run, worker, fence, lease)
  local till = text(now + lease)
  redis.call('SET', lock_key, run .. ' ' .. worker .. ' ' .. fence .. ' ' .. till, 'PX', lease)
  unlocked[lock_key] = nil
  return till
end

local function unlock() unlocked[lock_key] = true end

local function alive(lock) return lock and now <= lock.till end
