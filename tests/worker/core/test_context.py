"""What a model gets to read: within the budget, in whole groups, with the same beginning for as long as possible."""

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from postroom.worker.core import context, tokens
from postroom.worker.core.context import Cache, ContextPolicy, fit
from postroom.worker.core.errors import WindowTooSmall
from postroom.worker.core.groups import groups, paired, pinned
from postroom.worker.model.base import Limits, ToolSpec
from tests.worker.core.histories import Plain, ask, histories, result, say, well_paired

LOOK = ToolSpec("look", "Looks at something.", {"type": "object", "properties": {"at": {"type": "string"}}})
policies = st.builds(
    ContextPolicy,
    max_context_tokens=st.integers(40, 30_000),
    max_output_tokens=st.integers(1, 4000),
    min_recent_messages=st.integers(0, 12),
)


def window(size: int, recent: int = 10) -> ContextPolicy:
    """A policy that leaves just so much for messages."""
    return ContextPolicy(max_context_tokens=2 * size, max_output_tokens=size, min_recent_messages=recent)


def cost(*messages: Plain) -> int:
    return sum(map(tokens.of_message, messages))


def numbered(count: int, size: int = 400) -> list[Plain]:
    """Questions and answers of 104 tokens each."""
    return [say("user" if each % 2 == 0 else "assistant", f"{each:04}" * (size // 4)) for each in range(count)]


# The policy.


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_context_tokens": 0},
        {"max_output_tokens": 0},
        {"min_recent_messages": -1},
        {"autocompact_threshold": 0},
        {"compaction_mode": "all"},
        {"max_message_tokens": 5},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ContextPolicy(**wrong)


def test_a_policy_keeps_to_what_the_model_can_do() -> None:
    policy = ContextPolicy(autocompact_threshold=150_000)
    assert policy.input_tokens == 200_000 - 16_384
    assert policy.within(Limits()) == policy
    smaller = policy.within(Limits(context_window=32_000, max_output_tokens=4_000))
    assert (smaller.max_context_tokens, smaller.max_output_tokens, smaller.autocompact_threshold) == (
        32_000,
        4_000,
        28_000,
    )
    assert policy.within(Limits(context_window=1_000_000)) == policy


def test_a_small_window_can_still_read() -> None:
    small = ContextPolicy().within(Limits(context_window=8_000))
    assert (small.reserved_tokens, small.input_tokens) == (4_000, 4_000)


# The measures.


def test_what_fits_is_not_touched() -> None:
    messages = numbered(20)
    fitted = fit(messages, [], window(cost(*messages)))
    assert all(new is old for new, old in zip(fitted.messages, messages, strict=True))
    assert (fitted.dropped, fitted.shrunk, fitted.tokens) == (0, 0, cost(*messages))


def test_tools_take_their_part_of_the_window() -> None:
    messages = numbered(20)
    assert fit(messages, [LOOK], window(cost(*messages))).dropped > 0
    assert fit(messages, [LOOK], window(cost(*messages) + tokens.of_tool(LOOK))).dropped == 0


def test_old_outputs_are_shrunk_before_anything_is_left_out() -> None:
    large = "a line of it\n" * 1000
    messages = [say("user", "Look."), ask("a"), result("a", large), *numbered(12)]
    fitted = fit(messages, [], window(cost(*messages) - 1))
    assert (fitted.dropped, fitted.shrunk) == (0, 1)
    shown = fitted.messages[2]["content"][0]["text"]
    assert len(shown) <= context.SHRUNK_CHARACTERS
    assert shown.count("\n") == context.SHRUNK_LINES - 1
    assert shown.endswith("[cut: 13000 characters in all]")
    assert messages[2]["content"][0]["text"] == large


def test_recent_and_pinned_and_small_outputs_are_not_shrunk() -> None:
    large, small = "x" * 40_000, "x" * 4 * 2000
    messages = [
        say("user", "Look."),
        *(ask("a"), result("a", large, metadata={"pinned": True})),
        *(ask("b"), result("b", small)),
        *(ask("c"), result("c", large)),
        *numbered(8),
        *(ask("d"), result("d", large)),
    ]
    fitted = fit(messages, [], window(cost(*messages) - 5000))
    assert (fitted.dropped, fitted.shrunk) == (0, 1)
    assert [each for each in fitted.messages if each not in messages] == [fitted.messages[6]]


def test_pictures_of_an_old_output_are_named_only() -> None:
    picture = {"type": "image", "source": {"kind": "url", "url": "https://example.org/x"}}
    seen = {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "Two:"}, picture, picture]}
    messages = [say("user", "Look."), ask("a"), seen, *numbered(12)]
    fitted = fit(messages, [], window(cost(*messages) - 1))
    assert fitted.messages[2] == result("a", "Two:\n[image left out]\n[image left out]")


def test_the_oldest_go_first_and_more_of_them_than_needed() -> None:
    messages = [say("system", "Be kind."), *numbered(40)]
    room = cost(*messages) - 1
    fitted = fit(messages, [], window(room))
    assert fitted.messages == (messages[0], *messages[1 + fitted.dropped :])
    assert room // context.JUMPS <= cost(*messages) - fitted.tokens <= room // context.JUMPS + 2 * 104


def test_a_question_stays_as_long_as_one_of_its_answers() -> None:
    steps = [message for each in range(40) for message in (ask(f"c{each}"), result(f"c{each}", "y" * 400))]
    messages = [say("user", "First?"), *steps, say("user", "Second?"), *steps]
    fitted = fit(messages, [], window(cost(*messages) * 9 // 10))
    assert fitted.messages[0] == messages[0]
    assert fitted.messages[1:] == tuple(messages[1 + fitted.dropped :])
    fitted = fit(messages, [], window(cost(*messages) * 4 // 10))
    assert fitted.messages[0] == say("user", "Second?")


def test_the_latest_real_question_outlives_what_the_runtime_says_to_the_model() -> None:
    nudges = [say("user", "Go on." * 100, visibility="internal") for _ in range(20)]
    messages = [say("user", "What is it?"), *nudges]
    fitted = fit(messages, [], window(cost(*messages[:4])))
    assert fitted.messages[0] == messages[0]
    assert fitted.messages[-1] is messages[-1]


def test_recent_outputs_give_way_before_the_run_fails() -> None:
    messages = [say("user", "Look."), ask("a", "b"), result("a", "x" * 40_000), result("b", "x" * 40_000)]
    fitted = fit(messages, [], window(3000))
    assert (fitted.dropped, fitted.shrunk) == (0, 2)


def test_recent_messages_are_the_last_to_be_left_out() -> None:
    messages = numbered(40)
    assert fit(messages, [], window(cost(*messages[-12:]), recent=12)).messages == tuple(messages[-12:])
    fewer = fit(messages, [], window(cost(*messages[-11:]), recent=12)).messages
    assert fewer == tuple(messages[-len(fewer) :])


def test_not_even_the_latest_question_fits() -> None:
    with pytest.raises(WindowTooSmall, match=r"takes about 2504 tokens, the window has room for 1000 \(2000 less 1000"):
        fit([say("user", "x" * 10_000)], [], window(1000))
    with pytest.raises(WindowTooSmall, match="room for 0"):
        fit([say("user", "Hi.")], [ToolSpec("look", "x" * 8000, {})], window(1000))


# What always holds.


def survivors(messages: list[Plain]) -> list[Plain]:
    """What must be there, shrunk or not."""
    said = paired(messages)
    asked = [message for message in said if message["role"] == "user"]
    return [message for message in said if message["role"] == "system" or pinned(message)] + asked[-1:]


@given(histories(), policies, st.sampled_from([(), (LOOK,), (LOOK, LOOK)]))
def test_what_is_sent_is_within_the_budget_and_sound(
    messages: list[Plain], policy: ContextPolicy, tools: tuple[ToolSpec, ...]
) -> None:
    try:
        fitted = fit(messages, tools, policy)
    except WindowTooSmall:
        assume(False)
        raise
    assert fitted.tokens == cost(*fitted.messages)
    assert fitted.tokens + sum(map(tokens.of_tool, tools)) <= policy.input_tokens
    assert well_paired(fitted.messages)
    assert all(message in fitted.messages for message in survivors(messages))
    assert len(fitted.messages) + fitted.dropped == len(paired(messages))
    assert fit(fitted.messages, tools, policy).messages == fitted.messages


@given(histories(), policies)
def test_groups_go_whole_and_what_stays_stays_in_order(messages: list[Plain], policy: ContextPolicy) -> None:
    try:
        fitted = fit(messages, (), policy)
    except WindowTooSmall:
        assume(False)
        raise
    cache = Cache()
    left = iter(groups(messages))
    for group in groups(fitted.messages):
        assert any(
            len(group) == len(whole)
            and all(new in (old, cache.shrunk(old)) for new, old in zip(group, whole, strict=True))
            for whole in left
        ), "a group that was not there, or not in this order"


@given(histories(), policies)
def test_an_error_is_raised_only_when_what_must_stay_does_not_fit(messages: list[Plain], policy: ContextPolicy) -> None:
    cache = Cache()
    said = groups(messages)
    spoken = [group for group in said if group[0]["role"] != "system"]
    asked = [group for group in said if group[0]["role"] == "user"]
    # With every pinned answer its question stays.
    stay = [group for group in said if group[0]["role"] == "system" or any(map(pinned, group))]
    least = sum(cache.tokens(cache.shrunk(message)) for group in stay + spoken[-1:] + asked for message in group)
    if least <= policy.input_tokens:
        fit(messages, (), policy)


@given(histories(), policies)
def test_a_cache_changes_nothing_but_the_work(messages: list[Plain], policy: ContextPolicy) -> None:
    cache = Cache()

    def outcome(with_cache: Cache | None) -> Any:
        try:
            return fit(messages, (LOOK,), policy, with_cache)
        except WindowTooSmall as error:
            return error.message

    assert outcome(cache) == outcome(cache) == outcome(None)


@given(histories())
def test_a_history_may_grow_by_any_message(messages: list[Plain]) -> None:
    cache = Cache()
    for length in range(len(messages) + 1):
        assert cache.weighed(messages[:length]) == Cache().weighed(messages[:length])
    assert cache.weighed(messages[1:]) == Cache().weighed(messages[1:])


# Prompt caches.


def test_the_beginning_stays_the_same_for_many_steps() -> None:
    cache = Cache()
    policy = window(40_000)
    messages = [say("system", "Be kind."), say("user", "Go.")]
    kept = changed = 0
    before: tuple[Plain, ...] = ()
    for step in range(400):
        messages += [ask(f"c{step}"), result(f"c{step}", "z" * 2000)]
        now = fit(messages, (LOOK,), policy, cache).messages
        same = now[: len(before)] == before
        kept, changed, before = kept + same, changed + (not same), now
    assert changed <= 400 // 15
    assert kept + changed == 400
