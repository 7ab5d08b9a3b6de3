"""What tests of every part share."""

from collections.abc import Iterator

import pytest

from postroom.mailbox.server import start
from postroom.mailbox.settings import Settings


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real server for the whole session; use ids of your own instead of emptying it."""
    with start(Settings(data_dir=tmp_path_factory.mktemp("server"))) as server:
        yield server.url
