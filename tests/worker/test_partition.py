"""A worker is cut off from the server: another one goes on after the lease, and what the first still sends is void."""

from postroom.mailbox import keys
from postroom.worker.stock import SUSPENDED
from tests.waiting import until
from tests.worker import history
from tests.worker.fleet import Fleet, FleetOn, Server
from tests.worker.proxy import Proxy


def test_a_worker_that_is_cut_off_commits_nothing(fleet: Fleet) -> None:
    with Proxy(fleet.url) as proxy:
        cut_off = fleet.worker(url=proxy.url)
        runs = [fleet.submit([{"sleep": 0.4, "say": f"{i}.{step}"} for step in range(6)]) for i in range(8)]
        until(lambda: all(fleet.run(run).step for run in runs), 10, "each has taken a step")
        fences = {run.run_id: fleet.held(run).fence for run in runs}
        assert {fleet.held(run).worker for run in runs} == {cut_off.title}
        proxy.cut()
        other = fleet.worker()
        until(lambda: fleet.all_done(runs), 30, "the other worker ends them")
        assert {fleet.run(run).attempts for run in runs} == {1}
        assert all(fleet.run(run).fence > fences[run.run_id] for run in runs)
        assert history.wrong(fleet, runs) == []
        before = [(fleet.run(run).events, fleet.client.xlen(keys.log(run.thread_id))) for run in runs]
        # Now the commits arrive that were on their way when the wire was cut.
        proxy.mend()
        late = fleet.submit(["are you there?"])
        other.kill()
        until(lambda: cut_off.said().count("let go") == len(runs), 10, "the first worker has given up every run")
        until(lambda: fleet.all_done([late]), 10, "the first worker works again")
        assert [(fleet.run(run).events, fleet.client.xlen(keys.log(run.thread_id))) for run in runs] == before
        assert history.wrong(fleet, [*runs, late]) == []
        assert cut_off.stop() == 0


def test_a_worker_that_cannot_be_called_off_keeps_its_leases(fleet_on: FleetOn, server: Server) -> None:
    with fleet_on(server.url) as fleet, Proxy(server.url) as proxy:
        fleet.worker(url=proxy.url)
        held = fleet.submit([{"sleep": 6, "say": "one"}])
        fleet.held(held)
        until(lambda: any("b" in each["flags"] for each in fleet.client.client_list()), 10, "the worker waits for more")
        lost = fleet.request(["nobody hears of it"])
        heard = proxy.hold(f"{lost.run_id}-1".encode())
        fleet.submit_all([lost])
        assert heard.wait(10)
        fleet.client.set(SUSPENDED, 1)
        until(lambda: fleet.all_done([held]), 15, "what was under way is done")
        assert fleet.run(held).attempts == 0
