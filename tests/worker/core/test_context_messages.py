"""Messages for the model alone: which are taken, where they are placed, and when they go."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from postroom.worker.core.context_messages import CONTEXT_MESSAGES, ContextMessage, Target, add, due, emitted, placed
from postroom.worker.core.state import State
from tests.worker.core.histories import Plain, say

EMPTY = State().register([CONTEXT_MESSAGES])


def note(key: str, content: Any = "Mind the gap.", **more: Any) -> ContextMessage:
    return ContextMessage(key=key, content=content, **more)


def after(*added: tuple[ContextMessage, int], state: State = EMPTY) -> State:
    return state.apply([add(message, step) for message, step in added])


def keys(state: State) -> list[str]:
    return [key for key, _ in due(state)]


def texts(messages: tuple[Plain, ...]) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


@pytest.mark.parametrize(
    "wrong", [{"role": "tool"}, {"target": "middle"}, {"cooldown_turns": -1}, {"content": []}, {"key": ""}, {"more": 1}]
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ContextMessage(**{"key": "k", "content": "x", **wrong})


def test_a_message_is_placed_once_and_only_for_the_model() -> None:
    state = after((note("gap"), 1))
    ready = due(state)
    assert placed([], ready) == (say("system", "Mind the gap.", visibility="internal"),)
    assert due(state.apply([emitted(ready)])) == ()


def test_a_persistent_one_stays_and_is_the_same_object_in_every_step() -> None:
    state = after((note("gap", persistent=True), 1))
    later = state.apply([emitted(due(state))])
    assert placed([], due(later))[0] is placed([], due(state))[0]


def test_a_persistent_one_may_be_consumed_by_the_first_request() -> None:
    state = after((note("gap", persistent=True, consume_after_emit=True), 1))
    assert due(state.apply([emitted(due(state))])) == ()


def test_one_replaced_while_its_forerunner_was_placed_stays() -> None:
    state = after((note("gap", "Old."), 1))
    ready = due(state)
    state = after((note("gap", "New."), 1), state=state).apply([emitted(ready)])
    assert texts(placed([], due(state))) == ["New."]


def test_a_later_one_of_the_same_key_replaces_it() -> None:
    assert texts(placed([], due(after((note("gap", "Old."), 1), (note("gap", "New."), 1))))) == ["New."]


@pytest.mark.parametrize(
    ("cooldown", "content", "step", "taken"),
    [(0, "Same.", 4, True), (3, "Same.", 6, False), (3, "Same.", 7, True), (3, "Other.", 5, True)],
)
def test_the_same_content_is_taken_again_after_a_while(cooldown: int, content: str, step: int, taken: bool) -> None:
    state = after((note("gap", "Same.", cooldown_turns=3), 4))
    state = state.apply([emitted(due(state))])
    state = after((note("gap", content, cooldown_turns=cooldown), step), state=state)
    assert keys(state) == (["gap"] if taken else [])


def test_what_is_not_taken_does_not_begin_the_wait_again() -> None:
    state = after(*((note("gap", cooldown_turns=3), step) for step in (1, 2, 3)))
    state = state.apply([emitted(due(state))])
    assert keys(after((note("gap", cooldown_turns=3), 4), state=state)) == ["gap"]


def test_they_come_by_target_then_priority_then_key() -> None:
    notes = [note("b", priority=1), note("a", priority=1), note("z", priority=-1), note("end", target="suffix_system")]
    notes += [note("talk", target="conversation", priority=-9), note("here", target="session")]
    assert keys(after(*((each, 1) for each in notes))) == ["z", "a", "b", "here", "talk", "end"]


def test_each_target_has_its_place() -> None:
    state = after(*((note(target, target, target=target), 1) for target in Target))
    messages = [say("system", "prompt"), say("system", "summary"), say("user", "Hi."), say("system", "late")]
    expected = ["prompt", "system", "summary", "session", "conversation", "Hi.", "late", "suffix_system"]
    assert texts(placed(messages, due(state))) == expected
    assert texts(placed(messages[2:3], due(state))) == ["system", "session", "conversation", "Hi.", "suffix_system"]


notes = st.builds(
    ContextMessage,
    key=st.sampled_from("abc"),
    content=st.sampled_from(["x", "y"]),
    target=st.sampled_from(Target),
    priority=st.integers(-2, 2),
    cooldown_turns=st.integers(0, 3),
    persistent=st.booleans(),
    consume_after_emit=st.booleans(),
)


@given(st.lists(notes, max_size=8), st.lists(st.sampled_from(["system", "user", "assistant"]), max_size=5))
def test_placing_adds_what_is_due_and_moves_nothing(added: list[ContextMessage], roles: list[str]) -> None:
    state = after(*zip(added, itertools.count(), strict=False))
    assert json.loads(json.dumps(state[CONTEXT_MESSAGES])) == state[CONTEXT_MESSAGES]
    messages = [say(role, f"{place}") for place, role in enumerate(roles)]
    found = placed(messages, due(state))
    mine = [entry["message"] for _, entry in due(state)]
    assert [each for each in found if each not in mine] == messages
    assert [each for each in found if any(each is one for one in mine)] == mine
    left = state.apply([emitted(due(state))])
    assert [key for key, entry in due(state) if not entry["once"]] == keys(left)
