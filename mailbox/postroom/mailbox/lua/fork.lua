-- Begins a thread with what was said on another one. ARGV: clock, thread it comes from, sequence number there, agent,
-- queue, retentions of run, thread and key, state (names and values), messages (each its time, then its fields). Returns
-- "forked", or "again" when this very fork is already there.
local parent, at, agent, queue, keep_run, keep_thread, keep_dedupe = take(), take(), take(), take(), take(), take(), take()
local state_first, state_last = take_span()
local messages = {}
for i = 1, tonumber(take()) do messages[i] = {take_span()} end

local known = read(thread_key, 'parent', 'forked_at', 'created')
if known.created ~= '' then
  if known.parent == parent and known.forked_at == at then return 'again' end
  return refuse('TAKEN', 'thread ' .. thread_id .. ' exists already; choose another id')
end

redis.call('HSET', thread_key, 'agent', agent, 'queue', queue, 'seq', #messages, 'parent', parent, 'forked_at', at,
  'keep_run', keep_run, 'keep_thread', keep_thread, 'keep_dedupe', keep_dedupe, 'created', now_text, 'updated', now_text)
for seq, span in ipairs(messages) do redis.call('XADD', log_key, seq .. '-0', 'at', unpack(ARGV, span[1], span[2])) end
for place = state_first, state_last, 2 do redis.call('HSET', base .. 'state', ARGV[place], ARGV[place + 1]) end
if state_last > state_first then redis.call('HSET', thread_key, 'stateful', '1') end
-- Nobody works on it yet, so it goes away like any thread that is left alone.
for _, key in ipairs({thread_key, log_key, base .. 'state'}) do redis.call('PEXPIRE', key, keep_thread) end
list('postroom:threads', now_text, thread_id)
return 'forked'
