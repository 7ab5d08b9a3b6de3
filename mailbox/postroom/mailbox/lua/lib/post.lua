-- Puts mail into the mailbox: numbered per thread, so an entry id is never used twice even after the stream was deleted.

local function post(mail_id, reader, keep, ...)
  local number = redis.call('HINCRBY', thread_key, 'mail', 1)
  redis.call('XADD', mailbox_key, entry_id(number), 'id', mail_id, 'at', now_text, ...)
  redis.call('SET', base .. 'dedupe:mail:' .. mail_id, number .. ' ' .. reader, 'PX', keep)
  return number
end

-- Mail for the open run: a working one is told, one that waits for words is woken. Returns its doorbell if it has one.
local function deliver(open)
  local record = read(run_key_of(open), 'status', 'waiting', 'attempts')
  if record.status == 'running' then
    tell(read_lock(), 'mail')
  elseif record.status == 'waiting' and WOKEN_BY_MAIL[record.waiting] and redis.call('EXISTS', run_key_of(open) .. ':calls') == 0 then
    requeue(open, 'mail', record.attempts)
    return ring(open)
  end
  return nil
end
