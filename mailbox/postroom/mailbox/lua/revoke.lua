-- Takes back what was allowed for good on a thread. ARGV: clock, action key. Returns whether there was such a grant.
-- The worker that holds the thread is told, so that a run under way asks again at its next call.
local revoked = redis.call('HDEL', base .. 'state', 'grant:' .. take())
local lock = read_lock()
if lock then tell(lock, 'revoked') end
return revoked
