-- What every script of a thread shares: the keys of that thread and the indexes over all of them.
-- KEYS[1] is postroom:{T}:thread. Every other key is derived here: an interrupt must reach runs its caller cannot know,
-- and an index written by the script that decides can neither miss a run nor name one that was refused (docs/adr/0001).
local thread_key = KEYS[1]
local thread_id = string.sub(thread_key, 11, -9)
local base = string.sub(thread_key, 1, -7)
local log_key, mailbox_key = base .. 'log', base .. 'mailbox'

-- For a worker that is no longer the owner: another one is, or the run has left it.
local function refuse_fenced(run, status, thread_fence, fence)
  return refuse('FENCED', 'run ' .. run .. ' is ' .. (status ~= '' and status or 'gone') ..
    ' and the thread is at fence ' .. thread_fence .. ', not ' .. fence .. '; this activation is over')
end

local function run_key_of(run) return base .. 'run:' .. run end

-- A whole hash: flat, as Redis tells it, and by name.
local function read_all(hash)
  local flat, found = redis.call('HGETALL', hash), {}
  for i = 1, #flat, 2 do found[flat[i]] = flat[i + 1] end
  return flat, found
end
