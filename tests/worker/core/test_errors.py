"""The errors of the core: drawn as they are."""

import re

from postroom.worker.core import errors


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn = re.findall(r"^[\s│├└─]*([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)
    mine = [kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__]
    assert sorted(drawn[1:]) == sorted(kind.__name__ for kind in mine)
