"""RQ's side of a doorbell: which queues there are, and what to do with jobs whose worker died holding them.

A doorbell carries no state, so an abandoned one is simply dropped: the run itself comes back from the watch list.
"""

from postroom.mailbox import scripts
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op

QUEUES = "rq:queues"
# Started jobs whose worker stopped extending them. Anybody else's jobs on the same queue are RQ's own business.
_DROP = """
local dropped = 0
for _, entry in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 100)) do
  local job, execution = string.match(entry, '^(.*):([^:]*)$')
  local data = job and redis.call('HGET', 'rq:job:' .. job, 'description')
  if not data or string.sub(data, 1, #ARGV[2]) == ARGV[2] then
    redis.call('ZREM', KEYS[1], entry)
    if job then redis.call('DEL', 'rq:job:' .. job, 'rq:executions:' .. job, 'rq:execution:' .. entry) end
    dropped = dropped + 1
  end
end
return dropped
"""


def queue_keys() -> Op[list[str]]:
    """The keys of every queue RQ knows."""
    return Op(("SMEMBERS", QUEUES), lambda reply: sorted(name.decode() for name in reply))


async def drop_abandoned(group: Group, now: int) -> int:
    """Drops doorbells that were taken and never answered; says how many."""
    count = 0
    for key in await group.run(queue_keys()):
        started = "rq:wip:" + key.removeprefix("rq:queue:")
        while dropped := await group.run(Op(("EVAL", _DROP, 1, started, now // 1000, scripts.JOB), int)):
            count += dropped
    return count
