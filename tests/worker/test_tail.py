"""Following a run: live on a terminal, plain lines in a pipe."""

import os
import pty
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from postroom.dispatcher import Dispatcher
from postroom.mailbox import commit, lock, ops
from postroom.mailbox.commit import Batch, Owner
from postroom.mailbox.contracts import Termination
from postroom.mailbox.lifecycle import TerminationKind
from tests.waiting import until


class Screen:
    """What a process writes to a terminal of its own."""

    def __init__(self, command: list[str]) -> None:
        ours, theirs = pty.openpty()
        environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        self.process = subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=theirs, env=environ)
        os.close(theirs)
        self.ours, self.seen = ours, b""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self.ours, 4096):
                self.seen += chunk
        except OSError:  # a terminal whose process is gone
            return

    def shows(self, words: str) -> None:
        until(lambda: words.encode() in self.seen, 10, f"the terminal shows {words!r}")

    def close(self) -> int:
        code = self.process.wait(10)
        self.reader.join(5)
        os.close(self.ours)
        return code


@contextmanager
def at_work(url: str) -> Iterator[tuple[Dispatcher, Owner]]:
    """A run in our own hands."""
    with Dispatcher(url) as client:
        name = uuid.uuid4().hex
        client.submit("clerk", "hello", thread=name, run_id=name, queue=name)
        yield client, Owner(name, name, ops.run(client.client, lock.claim(name, name, "w", 60_000)).fence)


def tail(url: str, run_id: str) -> list[str]:
    return [sys.executable, "-m", "postroom.worker", "tail", run_id, "--url", url]


def finish(client: Dispatcher, owner: Owner, batch: Batch) -> None:
    ops.run(client.client, commit.finish(owner, batch, Termination(kind=TerminationKind.NATURAL_END)))


def test_a_terminal_shows_steps_calls_and_words_as_they_come(server_url: str) -> None:
    with at_work(server_url) as (client, owner):
        screen = Screen(tail(server_url, owner.run_id))
        screen.shows("waiting for a worker")
        first = Batch(1, step=3).tell({"type": "step_start"}).tell({"type": "text_delta", "delta": "I look it up."})
        first.tell({"type": "tool_call_start", "id": "c1", "name": "lookup"})
        ops.run(client.client, commit.commit(owner, first))
        for words in ("step 3", "I look it up.", "→ lookup"):
            screen.shows(words)
        assert b"succeeded" not in screen.seen
        second = Batch(2, step=3).tell({"type": "tool_call_done", "id": "c1", "outcome": "succeeded"})
        second.tell({"type": "text_delta", "delta": "It is \x1b]0;pwned\x07on its way."})
        finish(client, owner, second)
        assert screen.close() == 0
        for words in ("· lookup succeeded", "on its way.", "run_finish"):
            assert words.encode() in screen.seen
        assert b"\x1b]0;pwned" not in screen.seen, "a model's words are not obeyed by the terminal"


def test_a_pipe_gets_plain_lines(server_url: str) -> None:
    with at_work(server_url) as (client, owner):
        batch = Batch(1, step=1).tell({"type": "step_start"}).tell({"type": "text_delta", "delta": "Hello."})
        finish(client, owner, batch.tell({"type": "step_end"}))
        done = subprocess.run(tail(server_url, owner.run_id), capture_output=True, text=True, timeout=20, check=True)
        assert done.stdout == "Hello.\n· run_finish termination=natural_end\n"
        assert done.stderr == ""


@pytest.mark.parametrize("after", [0, 1])
def test_a_run_that_was_cancelled_is_told_by_the_exit_code(server_url: str, after: int) -> None:
    with Dispatcher(server_url) as client:
        run_id = client.submit("clerk", "x", queue=uuid.uuid4().hex).run_id
        client.cancel(run_id)
        screen = Screen([*tail(server_url, run_id), "--after", str(after)])
        assert screen.close() == (1 if after == 0 else 0)
