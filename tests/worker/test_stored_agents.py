"""Agents stored in Redis, served by real workers that are never restarted."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from postroom.mailbox import agents, keys
from postroom.mailbox.errors import NotFound
from postroom.mailbox.specs import AgentSpec
from tests.waiting import until
from tests.worker.fleet import Child, Fleet


class Shop:
    """A fleet, and the agents this test has stored."""

    def __init__(self, fleet: Fleet) -> None:
        fleet.app = "tests.worker.stored_app:app"
        self.fleet = fleet
        self.client = fleet.dispatcher
        self.name = f"agent-{fleet.tag}"
        self.stored = {self.name}

    def put(self, words: str, name: str = "", **more: Any) -> int:
        """Stores a version whose answers are these words."""
        agent = name or self.name
        self.stored.add(agent)
        spec = {"id": agent, "model": "parrot", "instructions": words, "tools": ["pay"], **more}
        return self.client.put_agent(spec, expected=None).version

    def submit(self, words: str = "hello", agent: str = "", **more: Any) -> str:
        options: dict[str, Any] = {"thread": self.fleet.thread(), "queue": self.fleet.queue, **more}
        return self.client.submit(agent or self.name, words, **options).run_id

    def answer(self, run: str) -> str:
        """The last words of a run, once it is done."""
        record = self.client.wait(run, timeout=20)
        assert record.status == "done", record
        said = self.client.messages(record.thread_id)[-1].message
        return "".join(block["text"] for block in said.get("content", ()))

    def listed(self, name: str = "") -> Any:
        return next(each for each in self.client.list_agents() if each.agent == (name or self.name))

    def seen(self, worker: Child) -> None:
        """Waits until the worker has seen all that is stored and has said so."""
        changes = int(self.fleet.client.get(keys.AGENTS_VERSION) or 0)
        key = f"postroom:worker:{worker.title}"
        until(lambda: int(self.fleet.client.hget(key, "agents") or 0) >= changes, 10, "the worker is up to date")

    def config(self, run: str) -> str:
        thread = self.client.get_run(run).thread_id
        return str(self.fleet.client.hget(keys.run(thread, run), "config").decode())


@pytest.fixture
def shop(fleet: Fleet) -> Iterator[Shop]:
    shop = Shop(fleet)
    yield shop
    for name in shop.stored:
        with suppress(NotFound):
            shop.client.drop_agent(name)


def test_a_new_agent_is_served_at_once_and_a_changed_one_soon(shop: Shop) -> None:
    worker = shop.fleet.worker()
    first = shop.put("one", plugins=["audit"], sections={"audit": {"level": 2}})
    run = shop.submit()
    assert shop.answer(run) == "one", "nobody waited for the worker to notice"
    assert shop.config(run) == agents.pin(first)
    second = shop.put("two")
    shop.seen(worker)
    assert shop.answer(shop.submit()) == "two"
    found = shop.listed()
    assert found.version == second
    # Workers of other tests may still be on the server's list.
    assert worker.title not in found.refused
    assert worker.title not in found.behind
    shop.client.restore_agent(shop.name, first)
    shop.seen(worker)
    assert shop.answer(shop.submit()) == "one"


def test_a_lost_wake_up_costs_a_heartbeat(shop: Shop) -> None:
    worker = shop.fleet.worker()
    spec = AgentSpec(id=shop.name, model="parrot", instructions="quiet")
    redis = shop.fleet.client
    number = redis.incr(keys.AGENTS_VERSION)
    fields = {"agent": shop.name, "spec": spec.written(), "by": "", "note": "", "at": "0"}
    redis.hset(keys.agent_version(number), mapping=fields)
    redis.hset(keys.AGENTS, shop.name, number)
    shop.seen(worker)
    assert f"agent {shop.name} is served as version {number}" in worker.said()


def test_a_run_under_way_keeps_its_version_on_every_worker(shop: Shop) -> None:
    first = shop.fleet.worker()
    number = shop.put("one")
    shop.seen(first)
    runs = [shop.submit("pay") for _ in range(2)]
    for run in runs:
        assert shop.client.wait(run, timeout=20).waiting == "approval"
    shop.put("two")
    assert first.stop() == 0
    second = shop.fleet.worker()
    shop.seen(second)
    assert shop.answer(shop.submit()) == "two"
    shop.client.decide(runs[0], "call-1-1", "allow_once")
    assert shop.answer(runs[0]) == "one", "a worker that never had the version has looked it up"
    shop.client.drop_agent(shop.name)
    shop.seen(second)
    shop.client.decide(runs[1], "call-1-1", "allow_once")
    assert shop.answer(runs[1]) == "one", "even after the agent was dropped"
    assert {shop.config(run) for run in runs} == {agents.pin(number)}
    gone = shop.client.wait(shop.submit(), timeout=20)
    assert gone.termination
    assert gone.termination.code == "agent_not_found"


def test_what_a_worker_cannot_serve_is_refused_and_told(shop: Shop) -> None:
    worker = shop.fleet.worker()
    number = shop.put("one")
    shop.seen(worker)
    bad = shop.put("two", tools=["pay", "nosuch"], plugins=["ghost"])
    why = until(lambda: shop.listed().refused.get(worker.title), 10, "the refusal is listed") or ""
    assert "tool 'nosuch' does not exist" in why
    assert "plugin 'ghost' does not exist" in why
    assert f"version {bad} of agent {shop.name} cannot be served here" in worker.said()
    run = shop.submit()
    assert shop.answer(run) == "one", "the version before it is still served"
    assert shop.config(run) == agents.pin(number)
    shop.put("three")
    until(lambda: worker.title not in shop.listed().refused, 10, "the refusal is over")
    shop.seen(worker)
    assert shop.answer(shop.submit()) == "three"


def test_a_run_nobody_here_can_serve_is_given_back_for_others(shop: Shop) -> None:
    shop.put("one", tools=["nosuch"])
    worker = shop.fleet.worker()
    shop.seen(worker)
    run = shop.submit()
    told: list[Any] = []
    until(lambda: [e for e in _events(shop, run, told) if e["type"] == "run_requeued"], 10, "it is given back")
    assert any("tool 'nosuch' does not exist" in json.dumps(event) for event in told)
    shop.put("two")
    assert shop.answer(run) == "two", "and is served once somebody can"


def _events(shop: Shop, run: str, told: list[Any]) -> list[Any]:
    told[:] = [entry.event for entry in shop.client.events(run, live=False)]
    return told


def test_of_two_agents_of_one_name_the_stored_one_counts(shop: Shop) -> None:
    worker = shop.fleet.worker()
    assert shop.answer(shop.submit(agent="coded")) == "coded"
    waiting = shop.submit(agent="looped")
    assert shop.client.wait(waiting, timeout=20).status == "waiting"
    shop.put("stored", "coded")
    shop.put("stored", "looped")
    shop.seen(worker)
    assert shop.answer(shop.submit(agent="coded")) == "stored"
    assert shop.answer(shop.submit(agent="looped")) == "stored"
    (call,) = shop.client.calls(waiting)
    shop.client.decide(waiting, call.call_id, "allow_once")
    assert shop.answer(waiting) == "looped", "a run under way keeps its loop"
    shop.client.drop_agent("coded")
    shop.seen(worker)
    assert shop.answer(shop.submit(agent="coded")) == "coded"
