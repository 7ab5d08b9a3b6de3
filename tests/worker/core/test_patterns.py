"""The language of rules: what a pattern means, how precise it is, and where its mistakes are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mailbox.errors import InvalidInput
from postroom.worker.core.pattern_parser import PatternError, parse
from postroom.worker.core.patterns import Condition, NameKind, Pattern, Wild

ROWS = {
    "rows": [{"sql": "SELECT 1"}, {"sql": "DROP x"}],
    "db": {"host": "prod", "port": 5432},
    "dry": False,
    "none": None,
}


@pytest.mark.parametrize(
    ("pattern", "tool", "arguments", "expected"),
    [
        ("Bash", "Bash", {"command": "ls"}, True),
        ("Bash", "bash", {}, False),
        ("Bash(*)", "Bash", {}, True),
        ("Bash()", "Bash", {"a": 1}, True),
        (" Bash ( * ) ", "Bash", {}, True),
        ("mcp__github__*", "mcp__github__issue", {}, True),
        ("mcp__github__*", "mcp__slack__post", {}, False),
        ("/mcp__(a|b)__.*/", "mcp__b__x", {}, True),
        ("/^read$/", "read_all", {}, False),
        ("/read/", "un_read_all", {}, True),
        (r"/a\/b/", "a/b", {}, True),
        ("Bash(npm *)", "Bash", {"command": "npm install"}, True),
        ("Bash(npm *)", "Bash", {"command": "git status"}, False),
        ("Bash(npm *)", "Bash", {}, False),
        ("Bash(*npm*)", "Bash", {"a": "npm", "b": 1}, True),
        ('Bash({"a":"npm","b":1})', "Bash", {"b": 1, "a": "npm"}, True),
        ("Bash(echo (x))", "Bash", {"command": "echo (x)"}, True),
        (r"Bash(echo \))", "Bash", {"command": "echo )"}, True),
        ('Q(db.host = "prod")', "Q", ROWS, True),
        ('Q(db.port = "5432")', "Q", ROWS, True),
        ('Q(dry = "false")', "Q", ROWS, True),
        ('Q(none = "")', "Q", ROWS, True),
        ('Q(db ~ "*prod*")', "Q", ROWS, True),
        ('Q(db.host != "prod")', "Q", ROWS, False),
        ('Q(db.host ~ "pr*", dry = "true")', "Q", ROWS, False),
        ('Q(db.host ~ "pr*", dry = "false")', "Q", ROWS, True),
        ('Q(rows[*].sql =~ "(?i)drop")', "Q", ROWS, True),
        ('Q(rows[0].sql =~ "(?i)drop")', "Q", ROWS, False),
        ('Q(rows[7].sql != "x")', "Q", ROWS, False),
        ('Q(rows[*].sql !=~ "DROP")', "Q", ROWS, True),  # one of them is enough
        ('Q(*.host = "prod")', "Q", ROWS, True),
        ('Q(* = "false")', "Q", ROWS, True),
        ('Q(db.* = "5432")', "Q", ROWS, True),
        ('Q(rows.sql != "x")', "Q", ROWS, False),
        *[(f'Q(missing {operator} "x")', "Q", ROWS, False) for operator in ("=", "~", "=~", "!=", "!~", "!=~")],
        ('Q(dry =~ "(")', "Q", ROWS, False),
        ('Q(dry !=~ "(")', "Q", ROWS, True),
        (r'Q(x = "say \"hi\" \\ ok")', "Q", {"x": 'say "hi" \\ ok'}, True),
        (r'Q(x =~ "\d+")', "Q", {"x": "a1"}, True),
        (r'Q(x ~ "\*")', "Q", {"x": "*"}, True),
        (r'Q(x ~ "\*")', "Q", {"x": "a"}, False),
    ],
)  # fmt: skip
def test_what_matches(pattern: str, tool: str, arguments: dict[str, Any], expected: bool) -> None:
    assert parse(pattern).matches(tool, arguments) is expected


def test_the_more_precise_says_more() -> None:
    order = [
        "/B.*/", '/B.*/(a = "x")', "B*", "B*(npm *)", "Bash", 'Bash(a =~ "x")', "Bash(npm *)", 'Bash(a = "x")',
        'Bash(a =~ "x", b =~ "x")', 'Bash(a = "x", b ~ "x")',
    ]  # fmt: skip
    found = [parse(each).specificity for each in order]
    assert found == sorted(found)
    assert len(set(found)) == len(found)
    assert parse("Bash(npm *)").specificity == parse('Bash(a ~ "x")').specificity


@pytest.mark.parametrize(
    ("pattern", "place", "said"),
    [
        ("", 1, "the end): expected the name of a tool"),
        ("(x)", 1, "expected the name of a tool"),
        ("two words", 5, "expected nothing more"),
        ("Bash(npm *", 11, "the end): expected ')' at the end"),
        ("Bash(x) y", 9, "expected nothing more"),
        ("Bash(command ~ npm)", 16, 'expected a value in "quotes"'),
        ("Bash(A=b)", 8, 'expected a value in "quotes"'),
        ('Bash(a = "x" b = "y")', 13, "expected ',' or ')'"),
        ('Bash(a = "x",)', 14, "expected the name of an argument"),
        ('Bash(a = "x)', 10, 'expected a value in "quotes"'),
        ('Bash(a[x] = "y")', 7, "expected one of = ~"),
        ("//", 2, "expected a regular expression that compiles"),
        ("/(/", 2, "expected a regular expression that compiles"),
        ("/abc", 5, "expected '/' after"),
    ],
)
def test_mistakes_are_pointed_at(pattern: str, place: int, said: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse(pattern)
    assert f"character {place} " in str(caught.value)
    assert said in str(caught.value)
    assert isinstance(caught.value, InvalidInput)


def test_expressions_that_do_not_compile_are_known() -> None:
    assert parse('Q(x =~ "(", y !=~ "[", z = "(")').broken == ("(", "[")


keys = st.from_regex(r"[a-z_$-][a-z0-9_$-]{0,5}", fullmatch=True)
paths = st.tuples(
    keys | st.just(Wild.KEY), st.lists(keys | st.integers(0, 99) | st.sampled_from(Wild), max_size=3)
).map(lambda found: (found[0], *found[1]))
conditions = st.builds(Condition, paths, st.sampled_from(["=", "~", "=~", "!=", "!~", "!=~"]), st.text(max_size=8))
names = st.tuples(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.just(NameKind.EXACT)) | st.sampled_from(
    [("mcp__*", NameKind.GLOB), ("a?[bc]", NameKind.GLOB), (r"a\/(b|c)", NameKind.REGEX)]
)


@given(names, st.lists(conditions, max_size=3))
def test_what_is_written_is_read_again(name: tuple[str, NameKind], found: list[Condition]) -> None:
    pattern = Pattern(*name, None, tuple(found))
    assert parse(str(pattern)) == pattern


@given(st.text('abB=~!"*()[].,/\\ ', max_size=24))
def test_any_text_is_a_pattern_or_one_clear_line(text: str) -> None:
    try:
        pattern = parse(text)
    except InvalidInput as error:
        assert "\n" not in str(error)
        return
    pattern.matches("aB", {"a": "b", "B": ["c"]})
    assert parse(str(pattern)) == pattern


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from("abc"), values, max_size=3), conditions)
def test_opposites_never_hold_of_the_same_single_value_and_never_of_what_is_missing(
    arguments: dict[str, Any], found: Condition
) -> None:
    opposite = found.operator[1:] if found.operator.startswith("!") else f"!{found.operator}"
    other = Condition(found.path, opposite, found.value)
    single = not any(isinstance(segment, Wild) for segment in found.path)
    assert not (single and found.holds(arguments) and other.holds(arguments))
    assert not found.holds({})
