"""The app that `module:app` names; whatever is wrong with it is its author's to read, in one line that says where."""

import importlib
import sys
import sysconfig
import traceback
from pathlib import Path

from postroom.mailbox.errors import InvalidInput, PostroomError
from postroom.worker.app import App

# Code that an app's author has not written: the standard library, what is installed, and ourselves.
_OTHERS = (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), str(Path(__file__).parents[1]), "<frozen ")


def load(place: str) -> App:
    """The app that `module:name` stands for; the working directory is importable, as with other servers."""
    module_name, _, attribute = place.partition(":")
    if not attribute or not all(map(str.isidentifier, module_name.split("."))):
        raise InvalidInput(f"--app {place!r} must look like package.module:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except PostroomError:
        raise
    except (Exception, SystemExit) as error:
        raise InvalidInput(f"--app {place!r}: {_told(error)}") from None
    try:
        found = getattr(module, attribute)
    except AttributeError:
        raise InvalidInput(f"--app {place!r}: module {module_name} has no {attribute!r}") from None
    if not isinstance(found, App):
        raise InvalidInput(f"--app {place!r} is a {type(found).__name__}, not an App")
    return found


def _told(error: BaseException) -> str:
    """The error in one line, with the file and the line that its author would look at."""
    words = " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    return ": ".join(filter(None, (_where(error), type(error).__name__, words)))


def _where(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    # The first two are ours and importlib's; when there is no such module there are no others.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__)[2:] if not frame.filename.startswith("<")]
    own = [frame for frame in frames if not frame.filename.startswith(_OTHERS)] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}" if own else ""
