"""Discovery: a card becomes a stored agent that workers serve; a card of no use is one clear line."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.responses import PlainTextResponse, Response

from postroom.dispatcher import Dispatcher
from postroom.mailbox.cards import card_of
from postroom.mailbox.errors import InvalidInput, VersionConflict
from postroom.worker import A2A, App
from postroom.worker.app import Agent
from postroom.worker.cli import main
from postroom.worker.model.scripted import ScriptedModel
from postroom.worker.stored import StoredAgents
from tests.worker.remote.abroad import Abroad
from tests.worker.remote.agent import RemoteAgent, refusing
from tests.worker.together.town import calling

Call = Callable[..., tuple[int, str, str]]
CARD = "/agent-card.json"


@pytest.fixture
def discover(server_url: str, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*words: str) -> tuple[int, str, str]:
        code = main(["agents", *words, "--url", server_url])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def name(discover: Call) -> Iterator[str]:
    name = f"agent-{uuid.uuid4().hex[:10]}"
    yield name
    discover("drop", name)


@pytest.fixture
def client(server_url: str) -> Iterator[Dispatcher]:
    with Dispatcher(server_url) as client:
        yield client


class Reader(Abroad):
    """An office that takes stored agents over, as a worker does when it starts."""

    async def _serve(self, *about: Any, **more: Any) -> bool:
        from postroom.mailbox.connect import connect_async
        from postroom.mailbox.group import Group

        client = await connect_async(self.url)
        group = Group(client)
        try:
            await StoredAgents(group, self.app).refresh()
            return await super()._serve(*about, **more)
        finally:
            self.app.registry.source = None
            await group.close()
            await client.aclose()


def test_a_discovered_agent_is_served_without_a_restart(
    agent: RemoteAgent, discover: Call, name: str, server_url: str, client: Dispatcher
) -> None:
    chief = f"{name}-chief"
    with Reader(
        server_url, App([], models={"m": ScriptedModel([calling(f"agent_run_{name}", prompt="chat"), "So."])})
    ) as office:
        code, out, _ = discover("discover", agent.url, "--id", name, "--by", "ann")
        assert (code, out.startswith(f"stored {name} as version ")) == (0, True)
        run = office.submit("complete this", agent=name)
        office.work()
        assert office.ended(run)[0] == "natural_end"
        assert office.words()[-1] == ("assistant", "It is done.")
        client.put_agent({"id": chief, "model": "m", "delegates": [name]})
        run = office.submit("Go.", agent=chief, thread=f"{office.thread}-2")
        office.work()
        plan: Any = office.app.registry.plan(chief)
        assert plan.specs[0].description.endswith("Does as it is told.")
        assert office.tool_results(f"{office.thread}-2")[0]["response"] == "Just words."
        client.drop_agent(chief)
    found = client.get_agent(name)
    assert (found.by, found.spec.description, found.spec.model) == ("ann", "Does as it is told.", None)
    assert found.spec.backend
    card = found.spec.backend.config.card
    assert card
    assert (card.url, card.binding, card.streaming) == (agent.url, "HTTP+JSON", True)
    assert [(skill.id, skill.description) for skill in card.skills] == [("obey", "Obeys.")]
    (listed,) = [each for each in client.list_agents() if each.agent == name]
    assert listed.model == f"a2a {agent.url}"
    assert discover("discover", agent.url, "--id", name)[1].startswith("same "), "found again it is the same"


def test_the_name_comes_from_the_card(agent: RemoteAgent, discover: Call) -> None:
    code, out, _ = discover("discover", agent.url, "--json")
    assert (code, json.loads(out)["agent"]) == (0, "obedient-agent")
    assert discover("drop", "obedient-agent")[0] == 0


def test_another_agent_of_that_name_is_not_replaced_unawares(
    agent: RemoteAgent, discover: Call, name: str, client: Dispatcher
) -> None:
    client.put_agent({"id": name, "model": "m"})
    code, _, err = discover("discover", agent.url, "--id", name)
    assert (code, err.count("\n")) == (2, 1)
    assert discover("discover", agent.url, "--id", name, "--force")[0] == 0
    with RemoteAgent() as other, pytest.raises(VersionConflict):
        client.put_card(other.url, other.described, agent=name)


def test_the_token_is_sent_and_stored_nowhere(
    agent: RemoteAgent, discover: Call, name: str, client: Dispatcher, monkeypatch: pytest.MonkeyPatch, server_url: str
) -> None:
    monkeypatch.setenv("A2A_OBEDIENT", "secret-4711")
    assert discover("discover", agent.url, "--id", name, "--auth-env", "A2A_OBEDIENT")[0] == 0
    with Reader(server_url, App([])) as office:
        run = office.submit("complete this", agent=name)
        office.work()
        assert office.ended(run)[0] == "natural_end"
    assert set(agent.keys) == {"Bearer secret-4711"}
    everything = str(client.get_agent(name)) + str(list(client.events(run, live=False)))
    assert "secret-4711" not in everything


def _with(agent: RemoteAgent, **change: Any) -> Callable[[], Response]:
    return refusing(200, **{**agent.described, **change})


def _place(**about: Any) -> dict[str, Any]:
    return {"url": "http://127.0.0.1:1", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", **about}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: refusing(404, detail="gone"), "gone (HTTP 404)"),
        (lambda _: refusing(401), "refused the request without a key (HTTP 401)"),
        (lambda _: refusing(302), "HTTP 302"),
        (lambda _: lambda: PlainTextResponse("<html>"), "is not JSON"),
        (lambda _: lambda: PlainTextResponse("x" * 300_000), "more than 262144 bytes"),
        (lambda _: lambda: PlainTextResponse("[]"), "has a shape we do not know"),
        (lambda agent: _with(agent, name=None, supportedInterfaces=[5]), "has a shape we do not know"),
        (lambda agent: _with(agent, supportedInterfaces=[_place(protocolVersion="0.3")]), "offers A2A 0.3; 1.0 is"),
        (lambda agent: _with(agent, supportedInterfaces=[], protocolVersion="0.3.0"), "offers A2A 0.3.0; 1.0 is"),
        (lambda agent: _with(agent, supportedInterfaces=[_place(protocolBinding="GRPC")]), "speaks GRPC; HTTP+JSON or"),
        (
            lambda agent: _with(agent, supportedInterfaces=[_place(url="http://10.0.0.1")]),
            "names another host, 10.0.0.1",
        ),
        (lambda agent: _with(agent, supportedInterfaces=[_place(url="file:///etc")]), "must be an http or https URL"),
        (
            lambda agent: _with(agent, capabilities={"extensions": [{"uri": "urn:x", "required": True}]}),
            "requires the extension 'urn:x'",
        ),
        (lambda agent: _with(agent, name="!!!"), "has no usable name"),
    ],
)
def test_a_card_of_no_use_is_one_line_and_exit_code_2(
    agent: RemoteAgent, discover: Call, answer: Callable[[RemoteAgent], Any], words: str
) -> None:
    agent.answers[CARD] = answer(agent)
    code, out, err = discover("discover", agent.url)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("postroom: ")
    assert words in err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["http://127.0.0.1:1"], "cannot be reached"),
        (["ftp://127.0.0.1"], "must be an http or https URL"),
        (["http://ann:secret@127.0.0.1"], "leave user and password out of the URL"),
        (["http://127.0.0.1:1", "--auth-env", "sk-live-12345"], "begins with A2A_"),
        (["http://127.0.0.1:1", "--auth-env", "OPENAI_API_KEY"], "begins with A2A_"),
        ([], "needs the address of a remote agent"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(discover: Call, given: list[str], words: str) -> None:
    code, out, err = discover("discover", *given)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_card_does_not_lead_out_into_the_open() -> None:
    card = {"name": "a", "supportedInterfaces": [_place(url="http://h.example/a2a")]}
    assert card_of("http://h.example", card).url == "http://h.example/a2a"
    for any_host in (False, True):
        with pytest.raises(InvalidInput, match="without encryption"):
            card_of("https://h.example", card, any_host)


def test_another_host_may_be_allowed(agent: RemoteAgent, discover: Call, name: str) -> None:
    agent.answers[CARD] = _with(agent, supportedInterfaces=[_place(url="http://10.0.0.1")])
    assert discover("discover", agent.url, "--id", name, "--any-host")[0] == 0


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"model": ScriptedModel(["x"])}, "is remote and has no model here"),
        ({"tools": ["send_message"], "instructions": "x"}, "is remote and has no instructions, tools here"),
        ({"loop": object()}, "is remote and has no loop here"),
        ({"max_rounds": 3, "delegates": ["b"]}, "has no delegates, max_rounds here"),
    ],
)
def test_what_is_not_for_us_to_say_is_found_when_the_app_is_built(about: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput) as error:
        App([Agent("a", backend=A2A("http://127.0.0.1:1"), **about), Agent("b", model=ScriptedModel(["x"]))])
    assert words in error.value.message


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"url": "gopher://x"}, "must be an http or https URL"),
        ({}, "must be an http or https URL"),
        ({"url": "http://x", "timeout_s": 0}, "timeout_s"),
        ({"url": "http://x", "colour": "red"}, "colour"),
        ({"url": "http://x", "auth_env": "secret"}, "begins with A2A_"),
        ({"url": "http://x", "auth_header": "X: y"}, "auth_header"),
    ],
)
def test_a_wrong_address_is_one_line_wherever_it_is_given(
    config: dict[str, Any], words: str, client: Dispatcher
) -> None:
    for mistake in (
        lambda: A2A(**config),
        lambda: client.put_agent({"id": "x", "backend": {"kind": "a2a", "config": config}}),
    ):
        with pytest.raises(InvalidInput) as error:
            mistake()
        assert words in error.value.message
        assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"model": "m", "backend": {"kind": "a2a", "config": {"url": "http://x"}}}, "a remote agent has no model here"),
        ({"backend": {"kind": "smoke", "config": {"url": "http://x"}}}, "backend.kind"),
        ({"backend": {"kind": "a2a", "version": 2, "config": {"url": "http://x"}}}, "backend.version"),
        ({"backend": {"kind": "a2a"}}, "backend.config"),
    ],
)
def test_a_definition_that_does_not_fit_together_is_not_stored(
    spec: dict[str, Any], words: str, client: Dispatcher
) -> None:
    with pytest.raises(InvalidInput) as error:
        client.put_agent({"id": "x", **spec})
    assert words in error.value.message
