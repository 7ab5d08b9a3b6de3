"""Summaries: when one is due, how far it may reach, what is asked for it, and which answers are good enough."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from postroom.mailbox import log
from postroom.mailbox.log import Entry
from postroom.worker.core import compaction, tokens
from postroom.worker.core.compaction import CompactionPolicy, Plan, Skipped, Summary, accept, due, plan, request
from postroom.worker.core.context import CompactionMode, ContextPolicy
from postroom.worker.core.groups import pinned
from tests.worker.core.histories import Plain, ask, histories, result, say, well_paired

POLICY = CompactionPolicy()
RAW = ContextPolicy(autocompact_threshold=1000)
SAFE = ContextPolicy(autocompact_threshold=1000, compaction_mode=CompactionMode.COMPACT_TO_SAFE_FRONTIER)
LONG = "some words " * 1000


def logged(*messages: Plain, first: int = 1) -> list[Entry]:
    return [Entry(seq, 0, "r", 0, message) for seq, message in enumerate(messages, first)]


def planned(
    entries: list[Entry], context: ContextPolicy = SAFE, policy: CompactionPolicy = POLICY, **more: Any
) -> Plan:
    found = plan(entries, context, policy, **more)
    assert found
    return found


@pytest.mark.parametrize(
    "wrong",
    [{"mode": "sometimes"}, {"summary_max_tokens": 0}, {"min_savings_ratio": 1}, {"prompt": ""}, {"model": "x"}],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CompactionPolicy(**wrong)


def test_a_summary_is_due_from_the_threshold_on() -> None:
    assert [due(total, RAW, POLICY) for total in (999, 1000)] == [False, True]
    assert not due(10**9, ContextPolicy(), POLICY)
    assert not due(10**9, RAW, CompactionPolicy(mode="off"))


def test_it_reaches_up_to_the_latest_question() -> None:
    entries = logged(say("user", LONG), say("assistant", "Well."), say("user", "And?"), say("assistant", LONG))
    found = planned(entries)
    assert (found.from_seq, found.to_seq, found.read_from) == (1, 2, 3)
    assert found.messages == tuple(each.message for each in entries[:2])
    assert found.tokens == sum(tokens.of_message(each.message) for each in entries[:2])


def test_what_the_runtime_says_to_the_model_is_no_question() -> None:
    nudge = say("user", "Go on.", visibility="internal")
    assert plan(logged(say("user", "Write."), say("assistant", LONG), nudge), SAFE, POLICY) is None


def test_the_last_messages_stay_raw_in_the_other_mode() -> None:
    entries = logged(say("user", LONG), say("assistant", LONG), say("user", "And?"))
    assert planned(entries, SAFE).to_seq == 2
    assert planned(entries, RAW).to_seq == 1
    assert planned(entries, RAW.model_copy(update={"compaction_raw_suffix_messages": 0})).to_seq == 2


def test_no_call_is_open_at_the_boundary() -> None:
    before = logged(say("user", LONG), ask("a", "b"), result("a"), say("user", "Hurry."), result("b"), say("user", "?"))
    assert planned(before).to_seq == 5
    assert planned(before[:5]).to_seq == 1


def test_too_little_is_not_worth_it() -> None:
    def of(size: int) -> Plan | None:
        return plan(logged(say("user", "x" * 4 * size), say("user", "?")), SAFE, POLICY)

    enough = POLICY.summary_max_tokens + compaction.MIN_GAIN - tokens.MESSAGE
    assert of(enough - 1) is None
    assert of(enough)


def test_what_is_pinned_parts_it() -> None:
    pin = say("user", "Never forget.", metadata={"pinned": True})
    entries = logged(say("system", "Rules."), say("user", LONG), pin, say("user", LONG), say("user", "?"))
    first = planned(entries)
    assert (first.from_seq, first.to_seq, first.read_from) == (2, 2, 1)
    summary = Entry(6, 0, "r", 0, say("system", "<conversation-summary>\nOld.\n</conversation-summary>"), covers=(2, 2))
    second = planned(log.view([*entries, summary]))
    assert (second.from_seq, second.to_seq, second.previous) == (4, 4, "")


def test_no_more_than_the_summarising_model_can_read() -> None:
    entries = logged(*(say("user", LONG) for _ in range(4)), say("user", "?"))
    asked = [sum(map(tokens.of_message, request(planned(entries[:end]), POLICY))) for end in (2, 3)]
    assert planned(entries, room=asked[1] + 10).to_seq == 2
    assert planned(entries, room=asked[1] - 10).to_seq == 1
    assert plan(entries, SAFE, POLICY, room=asked[0] - 10) is None


def test_a_large_output_counts_as_far_as_it_is_read() -> None:
    entries = logged(say("user", "Look."), ask("a"), result("a", "x" * 400_000), say("user", "?"))
    assert planned(entries, room=1000).to_seq == 3


def test_a_later_summary_takes_up_the_earlier_one_and_its_interval() -> None:
    entries = logged(say("user", LONG), say("assistant", "Well."), say("user", "And?"))
    first = accept(planned(entries), "He asked. I said well.", POLICY)
    assert isinstance(first, Summary)
    entries += [Entry(4, 0, "r", 0, first.message, covers=first.covers)]
    entries += logged(say("assistant", LONG), say("user", "So?"), first=5)
    view = log.view(entries)
    assert [each.seq for each in view] == [4, 3, 5, 6]
    second = planned(view)
    assert (second.from_seq, second.to_seq, second.read_from) == (1, 5, 6)
    assert second.previous == "He asked. I said well."
    assert "He asked. I said well." in request(second, POLICY)[1]["content"][0]["text"]
    done = accept(second, "All of it.", POLICY)
    assert isinstance(done, Summary)
    entries += [Entry(7, 0, "r", 0, done.message, covers=done.covers)]
    assert [each.seq for each in log.view(entries)] == [7, 6]
    assert log.view([each for each in entries if each.seq >= done.read_from]) == log.view(entries)


def test_the_request_shows_words_calls_and_the_beginning_of_outputs() -> None:
    thought = {"type": "thinking", "text": "Hmm."}
    picture = {"type": "image", "source": {"kind": "url", "url": "https://example.org/x"}}
    messages = (
        {"role": "user", "content": [{"type": "text", "text": LONG}, picture]},
        ask("a", content=[thought, {"type": "text", "text": "I look."}]),
        result("a", "y" * 5000),
    )
    system, user = request(planned(logged(*messages, say("user", "?"))), POLICY)
    assert system == say("system", POLICY.system_prompt)
    text = user["content"][0]["text"]
    assert f'user: {LONG}\n[image]\n\nassistant: I look.\n\nassistant calls look: {{"at": "a"}}\n\ntool: yyy' in text
    assert text.endswith(f"[cut: 5000 characters in all]\n</conversation>\n\n{POLICY.prompt}")
    assert "Hmm." not in text
    assert "<earlier-summary>" not in text


def test_a_summary_is_an_internal_message_of_the_system() -> None:
    found = planned(logged(say("user", LONG), say("user", "?")))
    done = accept(found, "<conversation-summary>\nHe talks. \n</conversation-summary>", POLICY)
    assert isinstance(done, Summary)
    expected = "<conversation-summary>\nHe talks.\n</conversation-summary>"
    assert done.message == say("system", expected, visibility="internal")
    assert (done.covers, done.saved) == ((1, 1), found.tokens - tokens.of_message(done.message))


def test_an_answer_that_saves_too_little_is_not_taken() -> None:
    found = planned(logged(say("user", LONG), say("user", "?")))
    assert accept(found, "  ", POLICY) == Skipped("the summary is empty")
    refused = accept(found, LONG[: len(LONG) * 8 // 10], POLICY)
    assert isinstance(refused, Skipped)
    assert refused.reason.endswith("which is less than 30%")
    assert isinstance(accept(found, LONG[: len(LONG) * 6 // 10], POLICY), Summary)


@given(
    histories(whole=True),
    st.sampled_from([RAW, SAFE]),
    st.integers(0, 40_000),
    st.builds(CompactionPolicy, summary_max_tokens=st.integers(1, 3000)),
)
def test_what_is_left_is_sound(
    messages: list[Plain], context: ContextPolicy, room: int, policy: CompactionPolicy
) -> None:
    entries = logged(*messages)
    found = plan(entries, context, policy, room)
    if not found:
        return
    assert well_paired(found.messages)
    assert sum(map(tokens.of_message, request(found, policy))) <= room
    assert not any(pinned(message) for message in found.messages)
    short = Entry(len(entries) + 1, 0, "r", 0, say("system", "Short."), covers=(found.from_seq, found.to_seq))
    after = log.view([*entries, short])
    assert well_paired([each.message for each in after])
    asked = [message for message in messages if message["role"] == "user"]
    assert not asked or any(each.message is asked[-1] for each in after)
    assert min((each.seq for each in after if not each.covers), default=found.to_seq + 1) == found.read_from
    assert sum(pinned(each.message) for each in after) == sum(map(pinned, messages))
