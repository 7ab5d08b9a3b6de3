"""Another project's provider serves our client: `make aimock` installs it, where there is node, and runs this."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.mailbox.settings import Settings
from postroom.worker.model.base import Stop, StopReason, ToolSpec
from postroom.worker.model.catalog import catalog
from postroom.worker.model.reply import whole
from postroom.worker.model.resolve import Models
from tests.worker.model.conftest import KEY, NAMES, fail, hear, question

SERVER = Path(__file__).parents[3] / ".cache" / "aimock" / "node_modules" / ".bin" / "llmock"
EACH = pytest.mark.parametrize("name", NAMES.values())
TEXT = "Grüße, 世界 🎈. " * 20
ARGUMENTS = {"location": "München", "unit": "celsius"}
# Each format has its own words for the same.
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "input_tokens": 9, "output_tokens": 4}
FIXTURES = [
    {"match": {"userMessage": "hello"}, "response": {"content": TEXT, "usage": USAGE}},
    {"match": {"userMessage": "think"}, "response": {"content": "Four.", "reasoning": "Two and two."}},
    {
        "match": {"userMessage": "weather"},
        "response": {"toolCalls": [{"name": "get_weather", "arguments": ARGUMENTS}] * 2},
    },
    {
        "match": {"userMessage": "limit"},
        "response": {"error": {"message": "Slow down", "type": "rate_limit_error"}, "status": 429},
    },
    {"match": {"userMessage": "break"}, "response": {"content": TEXT}, "truncateAfterChunks": 4, "latency": 20},
]

pytestmark = pytest.mark.skipif(not SERVER.exists(), reason="not installed; make aimock does it")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, on a port of its own."""
    path = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    path.write_text(json.dumps({"fixtures": FIXTURES}))
    command = [str(SERVER), "-p", "0", "-f", str(path), "--chunk-size", "7"]
    environ = os.environ | {"AIMOCK_API_KEYS": KEY}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environ) as process:
        assert process.stdout
        try:
            found = (re.search(r"listening on (http://\S+)", line) for line in process.stdout)
            yield next(match[1] for match in found if match)
        finally:
            process.terminate()


def models(url: str, key: str = KEY) -> Models:
    environ = {"OPENAI_API_KEY": key, "ANTHROPIC_API_KEY": key}
    environ |= {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url}
    quick = catalog({"retry": {"max_retries": 0, "max_stream_retries": 0}})
    return Models(Settings(), quick, environ)


@EACH
def test_words(url: str, name: str) -> None:
    parts = hear(models(url), name, question("hello"))
    assert (whole(parts).text, parts[-1]) == (TEXT, Stop(StopReason.END_TURN))
    assert len(parts) > 10
    assert (whole(parts).usage.input_tokens, whole(parts).usage.output_tokens) == (9, 4)


@EACH
def test_reasoning(url: str, name: str) -> None:
    reply = whole(hear(models(url), name, question("think")))
    assert (reply.text, "".join(thought["text"] for thought in reply.thoughts)) == ("Four.", "Two and two.")


@EACH
def test_parallel_calls(url: str, name: str) -> None:
    tools = (ToolSpec("get_weather", "Tells the weather.", {"type": "object", "properties": {}}),)
    reply = whole(hear(models(url), name, question("weather", tools=tools)))
    assert [(call.name, call.parsed) for call in reply.calls] == [("get_weather", ARGUMENTS)] * 2
    assert reply.stop is StopReason.TOOL_USE


@EACH
def test_refusals(url: str, name: str) -> None:
    assert fail(models(url), name, question("limit")).code == "model_rate_limited"
    assert fail(models(url, "wrong"), name, question("hello")).code == "model_unauthorized"


@EACH
def test_an_answer_that_breaks_off(url: str, name: str) -> None:
    assert fail(models(url), name, question("break")).code == "model_stream_interrupted"
