"""RQ's side of a doorbell: which queues there are, and what to do with jobs whose worker died holding them.

A doorbell carries no state. One that its worker had not come to answer is put back; what is left of the others is
dropped, for the run itself comes back from the watch list.
"""

from collections.abc import Sequence

from postroom.mailbox import scripts
from postroom.mailbox.group import Group
from postroom.mailbox.ops import Op

QUEUES = "rq:queues"
# Redis serves one script at a time, so a long list is worked off in pages.
PAGE = 100


def queue_keys() -> Op[list[str]]:
    """The keys of every queue RQ knows."""
    return Op(("SMEMBERS", QUEUES), lambda reply: sorted(name.decode() for name in reply))


def put_back(queue: str, worker: str, entries: Sequence[str]) -> Op[int]:
    """Puts back what the worker took of these, the first one first; says how many its runs still waited for."""
    places = (f"rq:wip:{queue}", f"rq:queue:{queue}")
    return Op(("EVALSHA", _script("returned").sha, 2, *places, worker, scripts.JOB, *reversed(entries)), int)


async def put_back_all(group: Group, worker: str) -> int:
    """Puts back whatever a worker took that is known to be dead; says how many."""
    count = 0
    for key in await group.run(queue_keys()):
        queue = key.removeprefix("rq:queue:")
        entries = await group.run(_started(queue))
        # The last page first, for each goes before what is there.
        for end in range(len(entries), 0, -PAGE):
            count += await group.run(put_back(queue, worker, entries[max(0, end - PAGE) : end]))
    return count


async def drop_abandoned(group: Group, now: int) -> int:
    """Drops doorbells that were taken and never answered; says how many."""
    count = 0
    for key in await group.run(queue_keys()):
        started = "rq:wip:" + key.removeprefix("rq:queue:")
        drop = Op(("EVALSHA", _script("abandoned").sha, 1, started, now // 1000, scripts.JOB), int)
        while dropped := await group.run(drop):
            count += dropped
    return count


def _started(queue: str) -> Op[list[str]]:
    return Op(("ZRANGE", f"rq:wip:{queue}", 0, -1), lambda reply: [entry.decode() for entry in reply])


def _script(name: str) -> scripts.Script:
    return scripts.of_package("postroom.dispatcher", name)
