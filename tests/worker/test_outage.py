"""The server goes away for a while, or answers nonsense."""

import time

from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import LONG, Fleet, FleetOn, Server


def test_everything_resumes_by_itself_after_an_outage(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url, max_attempts=100) as fleet:
        workers = fleet.workers(2, concurrency=16)
        workers.append(sweeper := fleet.sweeper())
        until(lambda: "standing by" in sweeper.said(), 20, "the dispatcher is up")
        script = [{"sleep": 0.2, "say": f"step {step}"} for step in range(8)]
        runs = [fleet.submit(script) for _ in range(50)]
        until(lambda: "done" in fleet.statuses(runs), 20, "the first are done")
        server.stop()
        back_at = time.monotonic() + (10 if LONG else 3)
        until(lambda: time.monotonic() > back_at, 20, "the outage is over")
        server.start()
        fleet.reconnect()
        until(lambda: fleet.all_done(runs), 40, "all are done")
        assert [worker.process.poll() for worker in workers] == [None] * 3
        assert history.wrong(fleet, runs) == []
        later = fleet.submit(["still there"])
        until(lambda: fleet.all_done([later]), 5, "new runs are served")
        run = fleet.submit(["begun", {"sleep": 300}])
        until(lambda: fleet.run(run).step == 1, 5, "a run works")
        fleet.dispatcher.cancel(run.run_id)
        until(lambda: fleet.all_done([run]), 5, "cancels are heard")


def test_an_outage_shorter_than_the_lease_is_not_charged(server: Server, fleet_on: FleetOn) -> None:
    with fleet_on(server.url, lease_ms=10_000) as fleet:
        fleet.worker()
        runs = [fleet.submit([{"sleep": 1, "say": "one"}, "two"]) for _ in range(20)]
        for run in runs:
            fleet.held(run)
        server.stop()
        back_at = time.monotonic() + 1.5
        until(lambda: time.monotonic() > back_at, 20, "the outage is over")
        server.start()
        fleet.reconnect()
        until(lambda: fleet.all_done(runs), 20, "all are done")
        assert {fleet.run(run).attempts for run in runs} == {0}
        assert history.wrong(fleet, runs) == []


def test_a_worker_that_cannot_consume_leaves_with_an_error(fleet: Fleet) -> None:
    worker = fleet.worker()
    fleet.client.hset(f"rq:queue:{fleet.queue}", "not", "a list")
    assert worker.exit_code(10) not in (0, None)
    assert not fleet.client.exists(f"postroom:worker:{worker.title}")
    assert "a loop of worker" in worker.said()
    fleet.client.delete(f"rq:queue:{fleet.queue}")
