"""The command as a process: Ctrl-C ends it quietly from its first moment, and no thread keeps it from leaving."""

import atexit
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import NoReturn

INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the command line and ends the process with its exit code."""
    try:
        # By name, for it stands above this package; not earlier, for whoever presses Ctrl-C does not wait for imports.
        code: int = import_module("postroom.worker.cli").main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    leave(code)


def leave(code: int) -> NoReturn:
    """Ends the process now: Python would first wait for every thread, and a tool may stay in one for hours."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
