-- Settles errands: carried out, put off, or given up. ARGV: clock, list of numbers done, list of number and wait for those put
-- off, list of number and reason for those given up. One that somebody else has settled is left alone. Returns how many
-- are left.
local outbox_key, tries_key = base .. 'outbox', base .. 'outbox:tries'
local done_first, done_last = take_span()
local later_first, later_last = take_span()
local lost_first, lost_last = take_span()

local function drop(number)
  redis.call('XDEL', outbox_key, number .. '-0')
  redis.call('HDEL', tries_key, number)
end

local function find(number) return redis.call('XRANGE', outbox_key, number .. '-0', number .. '-0')[1] end

for i = done_first, done_last do drop(ARGV[i]) end

local next_try
for i = later_first, later_last, 2 do
  if find(ARGV[i]) then
    local tries = tonumber(string.match(redis.call('HGET', tries_key, ARGV[i]) or '', '^%d+') or 0)
    local due = now + ARGV[i + 1]
    redis.call('HSET', tries_key, ARGV[i], (tries + 1) .. ' ' .. text(due))
    if not next_try or due < next_try then next_try = due end
  end
end

for i = lost_first, lost_last, 2 do
  local entry = find(ARGV[i])
  if entry then
    redis.call('XADD', base .. 'undelivered', '*', 'error', ARGV[i + 1], unpack(entry[2]))
    redis.call('PEXPIRE', base .. 'undelivered', read(thread_key, 'keep_thread').keep_thread)
    redis.call('ZADD', 'postroom:stranded', now_text, thread_id)
    drop(ARGV[i])
  end
end

local left = redis.call('XLEN', outbox_key)
if left == 0 then redis.call('DEL', outbox_key, tries_key) end
if redis.call('EXISTS', thread_key) == 1 then
  redis.call('HSET', thread_key, 'outbox', left, 'outbox_at', next_try and text(next_try) or '')
end
if next_try then look_by(next_try) end
return left
