"""Words on a command line: what a number, a duration or an object looks like, and one line for whatever does not."""

import argparse
import json
import math
from typing import Any, NoReturn

from postroom.mailbox.settings import MOST


class Parser(argparse.ArgumentParser):
    """A command line whose mistakes are one line, as all others are."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with what is wrong and where to read what would be right."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; see {self.prog} --help\n")


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def count(text: str) -> int:
    """How many of something there must be at least one of."""
    if (number := whole(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is too few; give 1 or more")
    return number


def seconds(text: str) -> float:
    """A duration that ends."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number * 1000 <= MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to {MOST // 1000}")
    return number


def json_object(text: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object such as " + "'{\"name\": 1}'")
    return found
