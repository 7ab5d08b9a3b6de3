-- What every transition of a thread shares: the keys of that thread and the indexes over all of them.
-- The first key is postroom:{T}:thread. Every other key is derived here: an interrupt must reach runs its caller cannot
-- know, and an index written by whoever decides can neither miss a run nor name one that was refused (docs/adr/0001).
local thread_key, thread_id, base, log_key, mailbox_key, lock_key, lane_key, timers_key
-- Errands that this very call has written.
local owed

local function open_thread(key)
  thread_key, thread_id, base = key, string.sub(key, 11, -9), string.sub(key, 1, -7)
  log_key, mailbox_key = base .. 'log', base .. 'mailbox'
  lock_key, lane_key, timers_key = base .. 'lock', base .. 'lane', base .. 'timers'
  owed = 0
end

-- For a worker that is no longer the owner: another one is, or the run has left it.
local function refuse_fenced(run, status, thread_fence, fence)
  return refuse('FENCED', 'run ' .. run .. ' is ' .. (status ~= '' and status or 'gone') ..
    ' and the thread is at fence ' .. thread_fence .. ', not ' .. fence .. '; this activation is over')
end

local function run_key_of(run) return base .. 'run:' .. run end
