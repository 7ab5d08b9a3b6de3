"""A remote agent for tests: the server of the A2A SDK on loopback, with an agent that does what it is told."""

import asyncio
import re
import socket
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import uvicorn
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf import json_format, struct_pb2
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.waiting import until

Plain = dict[str, Any]


class Gate:
    """Keeps those waiting who come while it is closed; opened and closed by the test, in another thread."""

    def __init__(self) -> None:
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def set(self) -> None:
        with self._lock:
            self._open, waiting, self._waiting = True, self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def clear(self) -> None:
        with self._lock:
            self._open = False

    async def passed(self) -> None:
        with self._lock:
            if self._open:
                return
            event = asyncio.Event()
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()


class Obedient(AgentExecutor):
    """Does what the first word of a message says; `go` lets those go on that wait."""

    def __init__(self) -> None:
        self.heard: list[Plain] = []
        self.cancelled: list[str] = []
        self.go = Gate()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        words = context.get_user_input()
        message = context.message
        assert message
        assert context.task_id
        assert context.context_id
        about = {"id": message.message_id, "words": words, "task": context.task_id, "context": context.context_id}
        self.heard.append({**about, "parts": len(message.parts)})
        if words.startswith("chat"):
            await event_queue.enqueue_event(_said("Just words.", context))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(
                Task(
                    id=context.task_id,
                    context_id=context.context_id,
                    status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                    history=[message],
                )
            )
        work = TaskUpdater(event_queue, context.task_id, context.context_id)
        await self._do(words.split()[0], work)

    async def _do(self, deed: str, work: TaskUpdater) -> None:
        if deed in ("hold", "stay"):
            await (work.start_work() if deed == "hold" else asyncio.sleep(0))
            await self.go.passed()
            deed = "complete"
        await _DEEDS[deed](self, work)

    async def _stream(self, work: TaskUpdater) -> None:
        await work.start_work(work.new_agent_message([Part(text="I begin.")]))
        for place, word in enumerate(("One,", " two,", " three.")):
            await work.add_artifact([Part(text=word)], artifact_id="count", name="count", append=place > 0)
            await asyncio.sleep(0.01)
        await work.add_artifact([Part(data=_value({"sum": 6})), Part(text="Sum: 6.")], artifact_id="sum", name="sum")
        await work.complete()

    async def _replace(self, work: TaskUpdater) -> None:
        await work.add_artifact([Part(text="Wrong.")], artifact_id="a")
        await work.add_artifact([Part(text="Right.")], artifact_id="a")
        await work.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id
        assert context.context_id
        self.cancelled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def _value(data: Plain) -> Any:
    return json_format.ParseDict(data, struct_pb2.Value())


def _said(words: str, context: RequestContext) -> Message:
    return Message(role=Role.ROLE_AGENT, message_id="said", parts=[Part(text=words)], context_id=context.context_id)


def _ending(how: str, words: str) -> Callable[[Obedient, TaskUpdater], Awaitable[None]]:
    async def end(_: Obedient, work: TaskUpdater) -> None:
        await getattr(work, how)(work.new_agent_message([Part(text=words)]))

    return end


_DEEDS: dict[str, Callable[[Obedient, TaskUpdater], Awaitable[None]]] = {
    "complete": _ending("complete", "It is done."),
    "fail": _ending("failed", "The ink ran dry."),
    "reject": _ending("reject", "I do not do that."),
    "give_up": _ending("cancel", "Somebody here stopped it."),
    "input": _ending("requires_input", "Which colour?"),
    "auth": _ending("requires_auth", "Show me your pass."),
    "red": _ending("complete", "It is red."),
    "It": _ending("complete", "You may pass."),
    "pass-7": _ending("complete", "Pass 7 it is."),
    "The": _ending("complete", "Then not."),
    "stream": Obedient._stream,
    "replace": Obedient._replace,
}


class RemoteAgent:
    """The server, running for as long as the block is; `requests` are those it got."""

    def __init__(self, streaming: bool = True, bindings: tuple[str, ...] = ("HTTP+JSON", "JSONRPC")) -> None:
        self.agent = Obedient()
        self.requests: list[str] = []
        self.versions: set[str] = set()
        self.keys: list[str | None] = []
        # Answers in place of the server's own, by what the path ends with.
        self.answers: dict[str, Callable[[], Response]] = {}
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        places = {"HTTP+JSON": self.url, "JSONRPC": f"{self.url}/rpc", "GRPC": "127.0.0.1:1"}
        self.card = AgentCard(
            name="Obedient Agent",
            description="Does as it is told.",
            version="1.2",
            capabilities=AgentCapabilities(streaming=streaming),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            supported_interfaces=[
                AgentInterface(url=places[each], protocol_binding=each, protocol_version="1.0") for each in bindings
            ],
            skills=[AgentSkill(id="obey", name="Obey", description="Obeys.", tags=["do"])],
        )
        handler = DefaultRequestHandler(self.agent, InMemoryTaskStore(), self.card)
        app = Starlette(
            routes=[
                *create_agent_card_routes(self.card),
                *create_jsonrpc_routes(handler, "/rpc"),
                *create_rest_routes(handler),
            ]
        )
        app.add_middleware(BaseHTTPMiddleware, dispatch=self._watched)
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        self._thread = threading.Thread(target=self._serve)

    async def _watched(self, request: Request, go_on: RequestResponseEndpoint) -> Response:
        path = request.url.path
        if path.endswith("/rpc"):
            path = f"rpc {(await request.json()).get('method')}"
        self.requests.append(re.sub("/tasks/[^:]+", "/tasks/…", path))
        self.keys.append(request.headers.get("authorization"))
        self.versions.add(request.headers.get("a2a-version", ""))
        for end, answer in self.answers.items():
            if path.endswith(end):
                return answer()
        return await go_on(request)

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def forget(self) -> None:
        """As if nobody had ever come; who waits goes on."""
        self.agent.go.set()
        self.agent.go = Gate()
        for known in (self.agent.heard, self.agent.cancelled, self.requests, self.keys, self.versions, self.answers):
            known.clear()

    @property
    def described(self) -> Plain:
        """Its card, as it is sent."""
        found: Plain = json_format.MessageToDict(self.card)
        return found

    @property
    def words(self) -> list[str]:
        """What it was told."""
        return [each["words"] for each in self.agent.heard]

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._server.started, 10, "the remote agent is up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.agent.go.set()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()
        self._socket.close()


def refusing(status: int, /, **body: Any) -> Callable[[], Response]:
    """An answer that is a refusal."""
    return lambda: JSONResponse(body, status)
