"""Calls and results belong together, whatever was found."""

from hypothesis import given

from postroom.worker.core.groups import INTERRUPTED, groups, paired
from tests.worker.core.histories import Plain, ask, histories, result, say, well_paired


def test_what_is_in_order_is_not_touched() -> None:
    messages = (
        say("system", "Be kind."),
        say("user", "Hi."),
        ask("a", "b"),
        result("a"),
        result("b"),
        ask("a"),
        result("a"),
    )
    assert all(new is old for new, old in zip(paired(messages), messages, strict=True))
    assert [len(group) for group in groups(messages)] == [1, 1, 3, 2]


def test_a_call_without_result_was_interrupted() -> None:
    asked = ask("a", "b")
    assert paired([asked, result("b")]) == (asked, result("a", INTERRUPTED), result("b"))


def test_results_follow_their_call_whatever_came_in_between() -> None:
    asked, mail = ask("a", "b"), say("user", "And?")
    assert paired([asked, result("b"), mail, result("a")]) == (asked, result("a"), result("b"), mail)


def test_the_last_result_of_a_call_counts() -> None:
    assert paired([ask("a"), result("a", "waiting"), result("a", "done")]) == (ask("a"), result("a", "done"))


def test_an_id_used_again_is_another_call() -> None:
    messages = [ask("a"), result("a", "one"), ask("a"), result("a", "two")]
    assert paired(messages) == tuple(messages)
    assert paired(messages[:3]) == (*messages[:3], result("a", INTERRUPTED))


def test_a_result_of_no_call_is_left_out() -> None:
    assert paired([result("x"), say("user", "Hi."), result("y")]) == (say("user", "Hi."),)


@given(histories())
def test_whatever_was_found_is_well_paired_afterwards(messages: list[Plain]) -> None:
    found = paired(messages)
    assert well_paired(found)
    assert paired(found) == found
    spoken = [message for message in messages if message["role"] != "tool"]
    assert [message for message in found if message["role"] != "tool"] == spoken


@given(histories(whole=True))
def test_a_sound_history_is_kept_as_it_is(messages: list[Plain]) -> None:
    assert paired(messages) == tuple(messages)
