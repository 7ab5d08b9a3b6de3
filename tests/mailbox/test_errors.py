"""The error tree: drawn as it is, codes unique and stable, replies mapped in one place."""

import re

from postroom.mailbox import errors, scripts
from postroom.mailbox.errors import BY_REPLY, PostroomError, from_reply


def tree(kind: type[PostroomError]) -> list[type[PostroomError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in tree(child))]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^[\s│├└─]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    mine = [kind for kind in tree(PostroomError) if kind.__module__ == errors.__name__]
    assert sorted(drawn[1:]) == sorted(kind.__name__ for kind in mine)


def test_codes_are_unique() -> None:
    codes = [kind.code for kind in tree(PostroomError)]
    assert len(codes) == len(set(codes))


def test_every_code_a_script_may_reply_has_a_class() -> None:
    replied = set(re.findall(r"refuse\('([A-Z]+)'", scripts.body()))
    assert replied == set(BY_REPLY)


def test_a_reply_becomes_its_error() -> None:
    error = from_reply("THREADBUSY the thread is busy with run r1")
    assert error is not None
    assert error.as_dict() == {"code": "thread_busy", "message": "the thread is busy with run r1", "retryable": False}
    assert from_reply("OOM command not allowed") is None
