"""What one bad record or job may cost: itself, never its neighbours and never the worker."""

from postroom.mailbox import keys
from postroom.mailbox.contracts import RunRequest
from tests.waiting import until
from tests.worker.fleet import Fleet


def spoil(fleet: Fleet, run: RunRequest) -> None:
    """Puts a message on the run's thread that this version cannot read."""
    fleet.client.xadd(keys.log(run.thread_id), {"role": "user", "body": b"\x09from the future"}, "1-0")
    fleet.client.hset(keys.thread(run.thread_id), "seq", 1)


def test_a_thread_that_cannot_be_read_does_not_end_the_worker(fleet: Fleet) -> None:
    bad, good = fleet.request(["never"]), fleet.request(["well"])
    fleet.submit_all([bad, good])
    spoil(fleet, bad)
    worker = fleet.worker()
    until(lambda: fleet.all_done([good]), 10, "the other run is done")
    until(lambda: fleet.run(bad).attempts > 0, 10, "the bad one is charged")
    assert fleet.run(good).attempts == 0
    assert worker.stop() == 0
