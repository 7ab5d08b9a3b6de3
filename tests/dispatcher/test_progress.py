"""What a run is at: the present and what is settled, folded from events."""

from postroom.dispatcher.progress import Progress, brief, words_of


def test_words_are_the_present_until_their_line_or_step_ends() -> None:
    progress = Progress()
    assert progress.feed({"type": "step_start", "step": 1}) == []
    assert progress.feed({"type": "text_delta", "delta": "Let me"}) == []
    assert progress.feed({"type": "text_delta", "delta": " see.\nOrder"}) == ["Let me see."]
    assert (progress.words, progress.doing, progress.step) == ("Order", "step 1", 1)
    assert progress.feed({"type": "step_end", "step": 1}) == ["Order"]
    assert progress.words == ""


def test_a_call_is_under_way_until_it_is_done() -> None:
    progress = Progress()
    progress.feed({"type": "text_delta", "delta": "I look it up."})
    assert progress.feed({"type": "tool_call_start", "id": "c1", "name": "lookup"}) == []
    assert progress.feed({"type": "tool_call_ready", "id": "c1", "name": "lookup", "arguments": {"order": 7}}) == []
    assert progress.calls == {"c1": "lookup({'order': 7})"}
    done = {"type": "tool_call_done", "id": "c1", "outcome": "succeeded", "result": "shipped"}
    assert progress.feed(done) == ["I look it up.", "· lookup({'order': 7}) succeeded shipped"]
    assert progress.calls == {}


def test_waiting_and_losing_a_worker_end_what_was_under_way() -> None:
    for event, doing in (
        ({"type": "run_waiting", "reason": "approval"}, "waiting for approval"),
        ({"type": "run_requeued", "reason": "crash"}, "waiting for a worker"),
    ):
        progress = Progress(calls={"c1": "lookup"})
        assert len(progress.feed(event)) == 1
        assert (progress.doing, progress.calls) == (doing, {})


def test_an_event_nobody_knows_is_a_line() -> None:
    assert Progress().feed({"type": "news", "step": 2, "what": "rain", "nothing": ""}) == ["· news what=rain"]
    assert words_of({"type": "step_end"}) == "step_end"


def test_long_values_are_cut() -> None:
    assert (brief("x" * 100, 10), brief(None), brief(7)) == ("x" * 9 + "…", "", "7")
