"""Every test of the Redis layer runs twice: on fakeredis for speed, on a real server for truth."""

from collections.abc import Iterator

import fakeredis
import pytest
import redis

from postroom.mailbox.connect import connect
from tests.mailbox.desk import Desk


@pytest.fixture
def real(server_url: str) -> Iterator[redis.Redis]:
    """A client of the real server."""
    client = connect(server_url)
    yield client
    client.close()


@pytest.fixture(params=["fake", "real"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    """A desk on each kind of server."""
    if request.param == "real":
        yield Desk(request.getfixturevalue("real"))
    else:
        client = fakeredis.FakeRedis(protocol=2)
        yield Desk(client)
        client.close()
