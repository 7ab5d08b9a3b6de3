-- Who holds the thread, who is next, and by when somebody must look.

-- Somebody must look at the thread by then. An earlier look stays; only a look itself, or idleness, takes one away.
local function look_by(time) redis.call('ZADD', 'postroom:watch', 'LT', text(time), thread_id) end

-- The lock says who works on the thread; it is alive up to and including lease_until.
local function read_lock()
  local value = redis.call('GET', lock_key)
  if not value then return nil end
  local run, worker, fence, till = string.match(value, '^(%S+) (%S+) (%d+) (%d+)$')
  return {run = run, worker = worker, fence = fence, till = tonumber(till)}
end

local function write_lock(run, worker, fence, lease)
  local till = text(now + lease)
  redis.call('SET', lock_key, run .. ' ' .. worker .. ' ' .. fence .. ' ' .. till, 'PX', lease)
  return till
end

local function alive(lock) return lock and now <= lock.till end
