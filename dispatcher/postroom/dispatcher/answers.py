"""How commands answer: words for people, one JSON value per line for programs."""

import argparse
import json
import sys
from dataclasses import asdict, is_dataclass
from typing import Any

from pydantic import BaseModel

from postroom.dispatcher.client import Dispatcher
from postroom.mailbox.errors import PostroomError
from postroom.mailbox.server import attach
from postroom.mailbox.settings import Settings


def client_of(given: argparse.Namespace) -> Dispatcher:
    """A client for the server the command was pointed at; a command that ends soon must not own one."""
    return Dispatcher(url_of(given.settings), given.settings)


def url_of(settings: Settings) -> str:
    """The server given, or the embedded one that somebody else runs."""
    return settings.redis_url or attach(settings).url


def say(given: argparse.Namespace, value: Any, words: str) -> None:
    """An answer, for people or for programs."""
    print_line(json.dumps(plain(value), ensure_ascii=False) if given.json else words)


def say_wrong(given: argparse.Namespace, error: PostroomError) -> int:
    """What a user did wrong, in one line, and the exit code for it."""
    if given.json:
        print_line(json.dumps({"error": error.as_dict()}))
    sys.stderr.write(f"postroom: {error.message}\n")
    return 2


def print_line(words: str) -> None:
    """A line on standard output, at once, so that a pipe sees it."""
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """Any answer as JSON would have it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, dict):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
