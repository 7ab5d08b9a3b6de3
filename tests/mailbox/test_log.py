"""The effective view of a log: pure, so tested without any server."""

from typing import Any

from postroom.mailbox.log import RETRACTION, Entry, view


def entry(seq: int, role: str = "user", text: str = "", **more: Any) -> Entry:
    run, covers, retracts = more.pop("run", "r"), more.pop("covers", None), more.pop("retracts", "")
    message = {"role": role, **more} | ({"content": [{"type": "text", "text": text}]} if text else {})
    return Entry(seq, 0, run, 1, message, retracts, covers)


def ask(seq: int, *calls: str, text: str = "", run: str = "r") -> Entry:
    return entry(seq, "assistant", text, tool_calls=[{"id": call, "name": "x"} for call in calls], run=run)


def answer(seq: int, call: str, **more: Any) -> Entry:
    return entry(seq, "tool", f"result {seq}", tool_call_id=call, **more)


def seqs(entries: list[Entry]) -> list[int]:
    return [each.seq for each in view(entries)]


def test_a_plain_log_is_its_own_view() -> None:
    assert seqs([entry(1, text="a"), ask(2, "c"), answer(3, "c"), entry(4, "assistant", "b")]) == [1, 2, 3, 4]


def test_a_summary_stands_where_its_interval_began() -> None:
    log = [entry(i, text=str(i)) for i in range(1, 6)] + [entry(6, "system", "sum", covers=(2, 4))]
    assert seqs(log) == [1, 6, 5]


def test_the_widest_summary_wins_and_of_two_alike_the_later() -> None:
    log = [entry(i, text=str(i)) for i in range(1, 6)]
    log += [
        entry(6, "system", "s", covers=(1, 2)),
        entry(7, "system", "s", covers=(1, 4)),
        entry(8, "system", "s", covers=(1, 4)),
    ]
    assert seqs(log) == [8, 5]


def test_metadata_of_a_user_is_no_summary() -> None:
    assert seqs([entry(1, text="a"), entry(2, text="b", metadata={"compaction": {"from": 0, "to": 9}})]) == [1, 2]


def test_a_rolled_back_run_is_out_of_sight_wherever_its_messages_stand() -> None:
    log = [
        entry(1, run="a"),
        entry(2, run="b"),
        entry(3, RETRACTION, run="", retracts="b"),
        entry(4, run="b"),
        entry(5, run="c"),
    ]
    assert seqs(log) == [1, 5]


def test_unanswered_and_retracted_calls_are_stripped() -> None:
    log = [ask(1, "a", "b", "c", text="hm"), answer(2, "a"), answer(3, "b", visibility="internal")]
    shown = view(log)
    assert [each.seq for each in shown] == [1, 2]
    assert [call["id"] for call in shown[0].message["tool_calls"]] == ["a"]
    assert seqs([ask(1, "a")]) == []


def test_the_last_result_of_a_call_counts_and_orphans_do_not() -> None:
    assert seqs([answer(1, "gone"), ask(2, "a"), answer(3, "a"), answer(4, "a")]) == [2, 4]


def test_an_id_given_twice_is_two_calls() -> None:
    assert seqs([ask(1, "a"), answer(2, "a"), ask(3, "a"), answer(4, "a")]) == [1, 2, 3, 4]
    assert seqs([ask(1, "a"), answer(2, "a"), ask(3, "a")]) == [1, 2]
