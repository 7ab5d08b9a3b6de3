"""What a tool says is cut by characters, and the note about it is within the limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.worker.core.limits import cut

NOTE = "[cut: 1000 characters in all]"


def test_a_text_within_its_limit_is_untouched() -> None:
    assert cut("word", 4) == ("word", False)
    assert cut("word", None) == ("word", False)
    assert cut("one\ntwo", None, lines=2) == ("one\ntwo", False)


def test_the_note_is_inside_the_limit() -> None:
    shown, was_cut = cut("x" * 1000, 100)
    assert was_cut
    assert shown == "x" * (100 - len(NOTE) - 1) + "\n" + NOTE
    assert len(shown) == 100


def test_characters_are_counted_and_not_bytes() -> None:
    assert cut("漢" * 100, 100) == ("漢" * 100, False)
    shown, _ = cut("漢🙂" * 500, 100)
    assert len(shown) == 100
    assert shown.encode()  # no character was cut in two


@pytest.mark.parametrize(
    ("limit", "shown"),
    [(-1, ""), (0, ""), (1, "x"), (len(NOTE) - 1, "x" * (len(NOTE) - 1)), (len(NOTE), NOTE), (len(NOTE) + 1, NOTE)],
)
def test_where_the_note_does_not_fit_the_text_is_just_short(limit: int, shown: str) -> None:
    assert cut("x" * 1000, limit) == (shown, True)


def test_lines_are_limited_too() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    shown, was_cut = cut(text, 1600, lines=24)
    assert was_cut
    assert shown.split("\n") == [*(f"line {number}" for number in range(23)), f"[cut: {len(text)} characters in all]"]


@given(st.text(), st.none() | st.integers(-2, 80), st.none() | st.integers(1, 5))
def test_the_limits_hold_and_only_the_end_is_missing(text: str, limit: int | None, lines: int | None) -> None:
    shown, was_cut = cut(text, limit, lines)
    if was_cut:
        assert shown != text
        head = shown.rpartition("[cut: ")[0].removesuffix("\n") if shown.endswith("in all]") else shown
        assert text.startswith(head)
    else:
        assert shown == text
    assert limit is None or len(shown) <= max(limit, 0)
    assert lines is None or shown.count("\n") < lines
