"""The page on tools says what is true: its examples run, and what they assert holds."""

import re
from pathlib import Path
from typing import Any

from postroom.worker.plugins.base import Plugin
from postroom.worker.tools.define import Options

PAGE = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()


def test_the_examples_run() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    known: dict[str, Any] = {"__name__": "docs"}
    for block in blocks:
        exec(compile(block, "docs/tools.md", "exec"), known)
    assert len(blocks) >= 6
    assert all(isinstance(each, Plugin) for each in known["plugins"])
    assert len({each.id for each in known["plugins"]}) == 4


def test_every_option_is_explained() -> None:
    explained = set(
        re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in PAGE.splitlines() if line.count("|") > 3))
    )
    assert set(Options.__annotations__) <= explained
