"""Globs: what matches, and that hostile text costs no more than its length."""

import fnmatch
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.catalogue import selected
from postroom.worker.core.globs import glob_matches


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("npm *", "npm install", True),
        ("npm *", "npm", False),
        ("src/*.py", "src/a/b.py", True),
        ("src/**/*.py", "src/b.py", True),
        ("src/**/*.py", "src/a/c/b.py", True),
        ("src/**/*.py", "tests/b.py", False),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("**/x", "ax", False),
        ("a**/b", "a/b", True),
        ("a**/b", "ab", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[a-c]x", "bx", True),
        ("[!a-c]x", "bx", False),
        ("[^a-c]x", "dx", True),
        ("[z-a]x", "mx", False),
        ("[!z-a]x", "mx", True),
        ("[ab", "[ab", True),
        (r"\*x", "*x", True),
        (r"\*x", "ax", False),
        (r"a\[b", "a[b", True),
        ("a\\", "a\\", True),
        ("*a*b", "xaxb\n", False),
        ("*a*b", "x\naxb", True),
        ("a.c", "abc", False),
        ("*ab*ab", "xab", False),
        ("*ab*ab", "abab", True),
        ("aa*aa", "aaa", False),
    ],
)
def test_what_matches(pattern: str, text: str, expected: bool) -> None:
    assert glob_matches(pattern, text) is expected


@given(st.text("ab*?", max_size=8), st.text("ab", max_size=10))
def test_like_a_shell_does_it(pattern: str, text: str) -> None:
    assert glob_matches(pattern, text) is fnmatch.fnmatchcase(text, pattern)


def by_hand(pattern: str, text: str) -> bool:
    """The slow and obvious way: `**/` folders, `*` anything, all else itself."""
    if not pattern:
        return not text
    if pattern.startswith("**/"):
        after = [text, *(text[i + 1 :] for i, letter in enumerate(text) if letter == "/")]
        return any(by_hand(pattern[3:], each) for each in after)
    if pattern[0] == "*":
        return any(by_hand(pattern[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and text[0] == pattern[0] and by_hand(pattern[1:], text[1:])


@given(
    st.lists(st.sampled_from(["**/", "a/", "b/"]), max_size=4),
    st.sampled_from(["*", "a", "*b"]),
    st.text("ab/", max_size=8),
)
def test_folders_are_any_number_of_folders(folders: list[str], last: str, text: str) -> None:
    assert glob_matches("".join(folders) + last, text) is by_hand("".join(folders) + last, text)


@given(st.text(max_size=20), st.text(max_size=20))
def test_any_text_is_a_glob(pattern: str, text: str) -> None:
    glob_matches(pattern, text)


@given(st.text(max_size=20))
def test_an_escaped_text_matches_itself_alone(text: str) -> None:
    escaped = "".join(f"\\{letter}" for letter in text)
    assert glob_matches(escaped, text)
    assert not glob_matches(escaped, text + "x")


def test_hostile_text_is_cheap() -> None:
    began = time.process_time()
    assert not glob_matches("*a" * 20 + "*b", "a" * 50_000)
    assert time.process_time() - began < 2  # one that looks back would take years


def test_too_many_folders_are_refused() -> None:
    with pytest.raises(InvalidInput, match="more than 4 times"):
        glob_matches("**/" * 5, "x")


def test_what_a_catalogue_selects() -> None:
    names = ["read", "read_all", "write", "mcp*", "a?b", "x/y"]
    assert selected(names) == names
    assert selected(names, None) == []
    assert selected(names, []) == []
    assert selected(names, ["read*", "write"]) == ["read", "read_all", "write"]
    assert selected(names, ["*"], ["read*"]) == ["write", "mcp*", "a?b", "x/y"]
    assert selected(names, [r"mcp\*"]) == ["mcp*"]
    assert selected(names, ["a?b"]) == ["a?b"]
    assert selected(names, ["[r]ead"]) == []
    assert selected(names, ["**/y"]) == ["x/y"]
    assert selected(["y"], ["**/y"]) == []


@given(st.text(max_size=10))
def test_in_a_catalogue_everything_but_the_star_means_itself(name: str) -> None:
    escaped = name.replace("\\", "\\\\").replace("*", "\\*")
    assert selected([name, name + "x"], [escaped]) == [name]
