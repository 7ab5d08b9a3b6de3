-- Delivers mail to a thread. ARGV: clock, mail id, mailbox limit, agent or "", queue, the only run it is for or "", retentions
-- of run, thread and key, mail fields. Mail for an idle thread starts a run. Returns {"accepted" | "again", number, reading run or "", doorbell or false}.
local mail_id, max_mail, agent, queue, only = take(), tonumber(take()), take(), take(), take()
local keep_run, keep_thread, keep_dedupe = take(), take(), take()
local first, last = take_span()
local thread = read(thread_key, 'open', 'agent', 'seq', 'mail', 'stateful', 'outbox')
local earlier = redis.call('GET', base .. 'dedupe:mail:' .. mail_id)
if earlier then
  local number, reader = string.match(earlier, '^(%d+) (%S*)$')
  return {'again', tonumber(number), reader, false}
end
if thread.agent == '' and agent == '' then
  return refuse('NOTHREAD', 'the thread does not exist or has expired; name an agent to start one')
end
if only ~= '' then
  local status = read(run_key_of(only), 'status').status
  if status == '' or status == 'done' then return refuse('RUNDONE', 'run ' .. only .. ' has ended; nobody reads its mail') end
end
if redis.call('XLEN', mailbox_key) >= max_mail then
  return refuse('MAILFULL', 'the mailbox holds as much unread mail as it may, ' .. max_mail .. '; try later')
end
redis.call('HSET', thread_key, 'updated', now_text)
for name, value in pairs({created = now_text, agent = agent ~= '' and agent or thread.agent, queue = queue,
  keep_run = keep_run, keep_thread = keep_thread, keep_dedupe = keep_dedupe, epoch = '0'}) do
  redis.call('HSETNX', thread_key, name, value)
end
local reader = thread.open ~= '' and thread.open or redis.call('ZRANGE', lane_key, 0, 0)[1]
if not reader then
  for_each_key(thread, 'PERSIST')
  reader = name_mail_run()
  local number = post(mail_id, reader, keep_dedupe, unpack(ARGV, first, last))
  start_for_mail(reader)
  return {'accepted', number, reader, ring(reader)}
end
local number = post(mail_id, reader, keep_dedupe, unpack(ARGV, first, last))
return {'accepted', number, reader, reader == thread.open and deliver(reader) or false}
