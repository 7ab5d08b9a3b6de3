"""`postroom agents`: stored definitions from the command line."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.worker.cli import main

Call = Callable[..., tuple[int, str, str]]
APP = "tests.worker.stored_app:app"


@pytest.fixture
def agents(server_url: str, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["agents", *words, "--url", server_url])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def name(agents: Call) -> Iterator[str]:
    name = f"agent-{uuid.uuid4().hex[:10]}"
    yield name
    agents("drop", name)


def _file(place: Path, data: Any) -> str:
    place.write_text(json.dumps(data))
    return str(place)


def test_put_show_change_list_restore_drop(agents: Call, name: str, tmp_path: Path) -> None:
    spec = {"id": name, "model": "parrot", "instructions": "one", "tools": ["pay"]}
    code, out, _ = agents("put", _file(tmp_path / "a", spec), "--by", "ann", "--app", APP, "--json")
    first = json.loads(out)
    assert (code, first["outcome"], first["agent"]) == (0, "stored", name)
    code, _, err = agents("put", _file(tmp_path / "b", {**spec, "instructions": "two"}))
    assert (code, err.count("\n")) == (2, 1)
    assert f"is at version {first['version']}, not at 0" in err
    shown = json.loads(agents("show", name, "--json")[1])
    assert (shown["version"], shown["by"], shown["spec"]["instructions"]) == (first["version"], "ann", "one")
    shown["spec"]["instructions"] = "two"
    edited = _file(tmp_path / "c", shown)
    code, out, _ = agents("put", edited)
    assert code == 0, "what was shown, edited and put replaces what was shown"
    assert out.startswith(f"stored {name} as version ")
    assert agents("put", edited)[1].startswith("same "), "a second time changes nothing"
    shown["spec"]["instructions"] = "three"
    assert agents("put", _file(tmp_path / "d", shown))[0] == 2, "somebody has changed it since"
    assert agents("put", str(tmp_path / "d"), "--force")[0] == 0
    (listed,) = [each for each in map(json.loads, agents("list", "--json")[1].splitlines()) if each["agent"] == name]
    assert (listed["model"], listed["refused"]) == ("parrot", {})
    assert name in agents("list")[1]
    code, out, _ = agents("restore", name, "--version", str(first["version"]))
    assert (code, out.startswith("stored")) == (0, True)
    _, out, err = agents("show", name)
    assert json.loads(out)["spec"]["instructions"] == "one"
    assert str(first["version"]) in err
    code, _, err = agents("drop", name, "--expected", str(first["version"]))
    assert (code, err.count("\n")) == (2, 1)
    assert agents("drop", name)[0] == 0
    assert agents("show", name)[0] == 2
    assert agents("show", name, "--version", str(first["version"]))[0] == 0, "an old version outlives the agent"


@pytest.mark.parametrize(
    "words",
    [
        ["show", "ghost"],
        ["show"],
        ["drop", "ghost"],
        ["drop", "two words"],
        ["restore", "ghost"],
        ["restore", "ghost", "--version", "999999999"],
        ["put"],
        ["put", "/no/such/file"],
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(agents: Call, words: list[str]) -> None:
    code, out, err = agents(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("postroom: ")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ([], "not a JSON object"),
        ({"id": "x"}, "AgentSpec.model"),
        ({"id": "x", "model": "parrot", "code": "import os"}, "AgentSpec.code"),
        ({"spec": {"id": "x", "model": "parrot"}}, "not as `postroom agents show`"),
        ({"id": "x", "model": "parrot", "tools": ["nosuch"]}, "tool 'nosuch' does not exist"),
        ({"id": "x", "model": "parrot", "plugins": ["ghost"]}, "plugin 'ghost' does not exist"),
        ({"id": "x", "model": "parrot", "context": {"max_context_tokens": 0}}, "ContextPolicy.max_context_tokens"),
        ({"id": "x", "model": "parrot", "delegates": ["ghost-agent"]}, "delegates to 'ghost-agent'"),
        (
            {"id": "x", "model": "parrot", "plugins": ["audit"], "sections": {"audit": {"level": "high"}}},
            "section 'audit'.level",
        ),
    ],
)
def test_what_an_app_cannot_serve_is_not_stored(agents: Call, tmp_path: Path, spec: Any, words: str) -> None:
    code, out, err = agents("put", _file(tmp_path / "spec", spec), "--app", APP)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
