-- Clears a thread: epoch + 1, queued runs superseded, the open run stopped. ARGV: clock, code.
-- Returns {epoch, open run or "", ended runs, next doorbell or false}.
local code = take()
if redis.call('EXISTS', thread_key) == 0 then return refuse('NOTHREAD', 'the thread does not exist or has expired') end
local epoch, open, ended = interrupt(code)
return {epoch, open, ended, hand_over() or false}
