"""Rate limits that the fleet shares: never more than allowed, nobody starved, nothing left behind."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postroom.mailbox import keys, limits
from postroom.mailbox.limits import FORGET_MS, LONGEST_WAIT_MS, Allowance
from tests.mailbox.desk import Desk

MINUTE = 60_000


class Crowd:
    """Requests to one model, made by the tenants of a test on its clock."""

    def __init__(self, desk: Desk, requests: int = 0, tokens: int = 0) -> None:
        self.desk = desk
        self.allowance = Allowance(f"model-{desk.tag}-{next(_numbers)}", requests, tokens)
        self._tickets = itertools.count()

    def arrive(self, tenant: str, tokens: int = 0) -> tuple[str, str, int]:
        return tenant, f"ticket{next(self._tickets):06}", tokens

    def ask(self, who: tuple[str, str, int]) -> int:
        tenant, ticket, tokens = who
        return self.desk.run(limits.admit(self.allowance, tenant, ticket, tokens, self.desk.now))

    def drain(self, waiting: list[tuple[str, str, int]], until: int) -> list[str]:
        """The tenants in the order they are let go, when everybody comes back as soon as told."""
        went: list[str] = []
        due = {who: self.desk.now + self.ask(who) for who in waiting}
        went += [who[0] for who in waiting if due[who] == self.desk.now]
        due = {who: when for who, when in due.items() if when > self.desk.now}
        while due and min(due.values()) <= until:
            who = min(due, key=lambda each: due[each])
            self.desk.now = due[who]
            if wait := self.ask(who):
                due[who] = self.desk.now + wait
            else:
                went.append(who[0])
                del due[who]
        return went

    def keys(self) -> list[bytes]:
        found: list[bytes] = self.desk.client.keys(f"{keys.limit(self.allowance.model)}*")
        return found


_numbers = itertools.count()


def test_a_full_bucket_then_as_fast_as_it_refills(desk: Desk) -> None:
    crowd = Crowd(desk, requests=60)
    assert [crowd.ask(crowd.arrive("a")) for _ in range(60)] == [0] * 60
    late = crowd.arrive("a")
    assert crowd.ask(late) == 1_000
    desk.now += 999
    assert crowd.ask(late) == 1
    desk.now += 1
    assert crowd.ask(late) == 0


def test_tokens_are_counted_too_and_settled_afterwards(desk: Desk) -> None:
    crowd = Crowd(desk, tokens=6_000)
    assert crowd.ask(crowd.arrive("a", 5_000)) == 0
    # It took less than was thought.
    assert desk.run(limits.settle(crowd.allowance, -4_000)) == 1
    assert crowd.ask(crowd.arrive("a", 5_000)) == 0
    # It took much more, so others wait for it.
    desk.run(limits.settle(crowd.allowance, 100))
    late = crowd.arrive("a", 100)
    assert crowd.ask(late) == 2_000
    assert desk.run(limits.settle(Allowance("never-used"), 100)) == 0


def test_a_request_larger_than_the_bucket_goes_when_it_is_full(desk: Desk) -> None:
    crowd = Crowd(desk, tokens=1_000)
    assert crowd.ask(crowd.arrive("a", 50_000)) == 0
    large = crowd.arrive("a", 50_000)
    assert crowd.ask(large) == LONGEST_WAIT_MS
    assert crowd.drain([large], desk.now + MINUTE) == ["a"]


def test_one_tenant_does_not_wait_behind_anothers_hundred(desk: Desk) -> None:
    crowd = Crowd(desk, requests=60)
    for _ in range(60):
        crowd.ask(crowd.arrive("greedy"))
    many = [crowd.arrive("greedy") for _ in range(100)]
    for who in many:
        assert crowd.ask(who) > 0
    one = crowd.arrive("modest")
    went = crowd.drain([*many, one], desk.now + 3_500)
    assert "modest" in went[:2]


def test_tenants_share_evenly(desk: Desk) -> None:
    crowd = Crowd(desk, requests=600)
    for _ in range(600):
        crowd.ask(crowd.arrive("first"))
    waiting = [crowd.arrive("a") for _ in range(60)] + [crowd.arrive("b") for _ in range(20)]
    waiting += [crowd.arrive("c") for _ in range(20)]
    went = crowd.drain(waiting, desk.now + 2 * MINUTE)
    assert len(went) == 100
    for tenant in "abc":
        assert 10 <= went[:40].count(tenant) <= 16, went[:40]


def test_a_place_nobody_comes_back_for_is_lost(desk: Desk) -> None:
    crowd = Crowd(desk, requests=60)
    for _ in range(60):
        crowd.ask(crowd.arrive("a"))
    dead = [crowd.arrive("a") for _ in range(30)]
    for who in dead:
        crowd.ask(who)
    alive = crowd.arrive("a")
    assert crowd.ask(alive) == LONGEST_WAIT_MS
    desk.now += FORGET_MS
    assert crowd.ask(alive) > 0
    desk.now += 1
    # Six seconds refilled six requests, and the dead no longer stand before it.
    assert crowd.ask(alive) == 0


def test_who_leaves_gives_up_the_place(desk: Desk) -> None:
    crowd = Crowd(desk, requests=60)
    for _ in range(60):
        crowd.ask(crowd.arrive("a"))
    first, second = crowd.arrive("a"), crowd.arrive("a")
    assert (crowd.ask(first), crowd.ask(second)) == (1_000, 2_000)
    for op in limits.leave(crowd.allowance, first[1], first[2]):
        assert desk.run(op) == 1
    assert crowd.ask(second) == 1_000


def test_everything_expires(desk: Desk) -> None:
    crowd = Crowd(desk, requests=1, tokens=10)
    for _ in range(3):
        crowd.ask(crowd.arrive("a", 5))
    found = crowd.keys()
    assert len(found) == 4
    assert all(0 < desk.client.pttl(key) <= 2 * MINUTE for key in found)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.integers(0, 3_000)), min_size=1, max_size=12),
    st.integers(20, 120),
    st.sampled_from([0, 5_000, 20_000]),
)
def test_never_more_than_allowed_and_everybody_goes(
    desk: Desk, arrivals: list[tuple[str, int, int]], requests: int, tokens: int
) -> None:
    crowd = Crowd(desk, requests, tokens)
    began, count = desk.now, 3 * len(arrivals)
    due: dict[tuple[str, str, int], int] = {}
    for tenant, size, pause in arrivals * 3:
        desk.now += pause // 10
        due[crowd.arrive(tenant, size)] = desk.now
    went: list[tuple[int, int]] = []
    while due:
        who = min(due, key=lambda each: due[each])
        desk.now = max(desk.now, due.pop(who))
        assert desk.now - began < 30 * MINUTE
        if wait := crowd.ask(who):
            due[who] = desk.now + wait
        else:
            went.append((desk.now, who[2]))
    assert len(went) == count
    for place, (at, _) in enumerate(went):
        # From the beginning on: a full bucket, and what refilled since.
        assert place + 1 <= requests + (at - began) * requests / MINUTE + 1e-6
        if tokens:
            spent = sum(min(size, tokens) for _, size in went[: place + 1])
            assert spent <= tokens + (at - began) * tokens / MINUTE + 1e-6
