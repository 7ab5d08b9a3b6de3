"""Stored agents: versions with numbers, nobody's change lost unseen, old versions kept long enough."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from postroom.mailbox import agents, keys
from postroom.mailbox.errors import AgentNotStored, InvalidInput, VersionConflict
from postroom.mailbox.specs import AgentSpec
from tests.mailbox.desk import Desk

KEEP = 1_000


def spec(desk: Desk, words: str = "one") -> AgentSpec:
    return AgentSpec(id=f"agent-{desk.tag}", model="m", instructions=words)


@pytest.fixture(autouse=True)
def _swept(desk: Desk) -> Iterator[None]:
    """The server is everybody's, and workers serve what is stored there."""
    yield
    with suppress(AgentNotStored):
        desk.run(agents.drop(f"agent-{desk.tag}", None, KEEP))


def put(desk: Desk, words: str, expected: int | None, kept: int = 64) -> agents.Put:
    return desk.run(agents.put(spec(desk, words), expected, "ann", "", KEEP, kept, desk.now))


def test_each_change_is_a_version_of_its_own(desk: Desk) -> None:
    name = f"agent-{desk.tag}"
    first = put(desk, "one", 0)
    assert (first.outcome, first.agent) == ("stored", name)
    before = desk.run(agents.changes())
    second = put(desk, "two", first.version)
    assert second.version > first.version
    assert desk.run(agents.changes()) > before
    assert desk.run(agents.present())[name] == desk.run(agents.present_version(name)) == second.version
    assert desk.run(agents.history(name)) == [second.version, first.version]
    old, new = desk.run(agents.version(first.version)), desk.run(agents.version(second.version))
    assert (old.agent, old.by, old.spec, old.replaced) == (name, "ann", spec(desk, "one").written(), desk.now)
    assert new.replaced is None


def test_the_same_again_changes_nothing(desk: Desk) -> None:
    first = put(desk, "one", 0)
    before = desk.run(agents.changes())
    assert put(desk, "one", 0) == agents.Put("same", first.agent, first.version)
    assert desk.run(agents.changes()) == before


def test_what_one_has_not_seen_one_does_not_replace(desk: Desk) -> None:
    first = put(desk, "one", 0)
    with pytest.raises(VersionConflict, match=f"is at version {first.version}, not at 0"):
        put(desk, "two", 0)
    second = put(desk, "two", first.version)
    with pytest.raises(VersionConflict):
        put(desk, "three", first.version)
    with pytest.raises(VersionConflict):
        desk.run(agents.drop(first.agent, first.version, KEEP, desk.now))
    assert desk.run(agents.present_version(first.agent)) == second.version
    assert put(desk, "three", None).version > second.version


def test_a_dropped_agent_leaves_its_versions_for_a_while(desk: Desk) -> None:
    first = put(desk, "one", 0)
    before = desk.run(agents.changes())
    assert desk.run(agents.drop(first.agent, None, KEEP, desk.now)) == first.version
    assert desk.run(agents.changes()) > before
    assert first.agent not in desk.run(agents.present())
    assert desk.run(agents.version(first.version)).spec == spec(desk).written()
    assert 0 < desk.ttl(keys.agent_version(first.version)) <= KEEP
    with pytest.raises(AgentNotStored):
        desk.run(agents.drop(first.agent, None, KEEP, desk.now))
    with pytest.raises(VersionConflict, match="is not stored, not at"):
        put(desk, "two", first.version)
    again = put(desk, "two", 0)
    assert again.version > first.version, "a number is never given twice"
    assert desk.ttl(keys.agent_version(first.version)) == -1
    assert desk.run(agents.history(first.agent)) == [again.version, first.version]


def test_old_versions_go_when_there_are_many_and_no_run_can_need_them(desk: Desk) -> None:
    numbers = [put(desk, str(i), None, kept=2).version for i in range(4)]
    assert desk.run(agents.history(f"agent-{desk.tag}")) == numbers[::-1], "none is old enough"
    desk.now += KEEP + 1
    newest = put(desk, "last", None, kept=2).version
    assert desk.run(agents.history(f"agent-{desk.tag}")) == [newest, numbers[-1]]
    with pytest.raises(AgentNotStored, match="given up"):
        desk.run(agents.version(numbers[0]))


def test_names_and_notes_are_checked(desk: Desk) -> None:
    with pytest.raises(InvalidInput):
        desk.run(agents.drop("two words", None, KEEP))
    with pytest.raises(InvalidInput, match="note has 300 characters"):
        agents.put(spec(desk), 0, "", "x" * 300, KEEP)


@pytest.mark.parametrize(
    ("config", "number"), [("stored:7", 7), ("", 0), ("3f2a91", 0), ("stored:", 0), ("stored:x", 0)]
)
def test_a_pin_is_told_from_others(config: str, number: int) -> None:
    assert agents.pinned(config) == number
    assert agents.pinned(agents.pin(12)) == 12
