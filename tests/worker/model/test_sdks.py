"""The providers' own clients understand our provider, so what the tests say about it is true of the real ones."""

import json

import anthropic
import openai
import pytest

from tests.worker.model import wires
from tests.worker.model.conftest import KEY
from tests.worker.model.provider import Provider, Reaction
from tests.worker.model.wires import CHAT, MESSAGES, Answer, Call

FULL = Answer(
    text=("Grüße, ", "世界 🎈"),
    thoughts=("Let me ", "see…"),
    calls=(Call("call_a", "lookup", ('{"city": "Mün', 'chen"}')), Call("call_b", "now", ("{}",))),
)
TEXT = "Grüße, 世界 🎈"
ARGUMENTS = [{"city": "München"}, {}]


@pytest.fixture
def theirs(provider: Provider) -> openai.OpenAI:
    """OpenAI's client."""
    return openai.OpenAI(api_key=KEY, base_url=f"{provider.url}/v1", max_retries=0)


@pytest.fixture
def claude(provider: Provider) -> anthropic.Anthropic:
    """Anthropic's client."""
    return anthropic.Anthropic(api_key=KEY, base_url=provider.url, max_retries=0)


@pytest.mark.parametrize("cut", [0, 5])
def test_chat_completions_streamed(provider: Provider, theirs: openai.OpenAI, cut: int) -> None:
    provider.react(Reaction(FULL, cut=cut))
    with (
        theirs,
        theirs.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Hi"}], stream_options={"include_usage": True}
        ) as stream,
    ):
        done = stream.get_final_completion()
    message = done.choices[0].message
    assert (message.content, done.choices[0].finish_reason) == (TEXT, "tool_calls")
    assert [json.loads(call.function.arguments) for call in message.tool_calls or ()] == ARGUMENTS
    assert done.usage
    assert done.usage.prompt_tokens_details
    assert (done.usage.prompt_tokens, done.usage.prompt_tokens_details.cached_tokens) == (100, 40)


def test_chat_completions_whole(provider: Provider, theirs: openai.OpenAI) -> None:
    provider.react(FULL)
    with theirs:
        done = theirs.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert done.choices[0].message.content == TEXT
    assert [call.id for call in done.choices[0].message.tool_calls or ()] == ["call_a", "call_b"]


@pytest.mark.parametrize("cut", [0, 5])
def test_responses_streamed(provider: Provider, theirs: openai.OpenAI, cut: int) -> None:
    provider.react(Reaction(FULL, cut=cut))
    with theirs, theirs.responses.stream(model="m", input="Hi") as stream:
        heard = [event.type for event in stream]
        done = stream.get_final_response()
    assert done.output_text == TEXT
    assert [item.type for item in done.output] == ["reasoning", "message", "function_call", "function_call"]
    assert {"response.reasoning_summary_text.delta", "response.function_call_arguments.delta"} < set(heard)
    assert done.usage
    assert done.usage.output_tokens_details.reasoning_tokens == 12


def test_responses_whole(provider: Provider, theirs: openai.OpenAI) -> None:
    provider.react(FULL)
    with theirs:
        assert theirs.responses.create(model="m", input="Hi").output_text == TEXT


@pytest.mark.parametrize("cut", [0, 5])
def test_messages_streamed(provider: Provider, claude: anthropic.Anthropic, cut: int) -> None:
    provider.react(Reaction(FULL, cut=cut))
    with (
        claude,
        claude.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]) as stream,
    ):
        done = stream.get_final_message()
    thought, words, *calls = done.content
    assert (thought.type, words.type) == ("thinking", "text")
    assert getattr(thought, "signature", "") == "c2ln"
    assert getattr(words, "text", "") == TEXT
    assert [getattr(call, "input", None) for call in calls] == ARGUMENTS
    assert (done.stop_reason, done.usage.cache_read_input_tokens) == ("tool_use", 40)


def test_messages_whole(provider: Provider, claude: anthropic.Anthropic) -> None:
    provider.react(FULL)
    with claude:
        done = claude.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}])
    assert [block.type for block in done.content] == ["thinking", "text", "tool_use", "tool_use"]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(401, "invalid_api_key", openai.AuthenticationError), (429, "rate_limit_exceeded", openai.RateLimitError)],
)
def test_refusals_of_openai(
    provider: Provider, theirs: openai.OpenAI, status: int, code: str, kind: type[openai.APIStatusError]
) -> None:
    provider.react(Reaction(status=status, body=wires.refused(CHAT, code, "no")))
    with theirs, pytest.raises(kind) as caught:
        theirs.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.code == code


def test_refusals_of_anthropic(provider: Provider, claude: anthropic.Anthropic) -> None:
    provider.react(Reaction(status=529, body=wires.refused(MESSAGES, "overloaded_error", "Overloaded")))
    with claude, pytest.raises(anthropic.APIStatusError) as caught:
        claude.messages.create(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.status_code == 529


def test_an_error_in_the_middle(provider: Provider, theirs: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    for path in (CHAT, MESSAGES):
        body = wires.refused(path, "overloaded_error", "Overloaded")
        provider.react(Reaction(frames=[*wires.frames(path, FULL)[:5], wires.event(body, "error")]))
    with theirs, pytest.raises(openai.APIError, match="Overloaded"):
        for _ in theirs.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}], stream=True):
            pass
    with claude, pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        for _ in claude.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "Hi"}], stream=True
        ):
            pass
