"""Functions on the server: versions live side by side, and one that is long out of use goes."""

import asyncio
import uuid
from typing import Any

import pytest
from redis.exceptions import NoPermissionError

from postroom.mailbox import keys, libraries, ops, scripts
from postroom.mailbox.connect import connect, connect_async
from postroom.mailbox.group import Group


def names(client: Any) -> set[str]:
    (found,) = ops.exchange(client, [("FUNCTION", "LIST", "LIBRARYNAME", "postroom_*")])
    return {library[1].decode() for library in found}


def teach(client: Any, name: str, at: int) -> None:
    body = f"redis.register_function('{name}_nothing', function() return 1 end)"
    ops.exchange(client, [("FUNCTION", "LOAD", f"#!lua name={name}\n{body}")])
    client.zadd(keys.LIBRARIES, {name: at})


def test_what_is_long_out_of_use_is_dropped_and_nothing_else(real: Any) -> None:
    ops.load_scripts(real)
    now, tag = 10**13 - libraries.KEPT_MS, uuid.uuid4().hex[:12]
    old, older = f"postroom_{tag}_new", f"postroom_{tag}_old"
    teach(real, old, now - libraries.KEPT_MS)
    teach(real, older, now - libraries.KEPT_MS - 1)
    ops.run(real, libraries.in_use(now))
    outdated = ops.run(real, libraries.outdated(now))
    assert older in outdated
    assert not {old, scripts.library().name} & set(outdated)
    ops.run_all(real, libraries.forget(older))
    assert names(real) & {old, older, scripts.library().name} == {old, scripts.library().name}
    assert real.zscore(keys.LIBRARIES, older) is None
    ops.run_all(real, libraries.forget(old))


def test_whoever_needs_a_library_that_was_dropped_teaches_it_again(real: Any) -> None:
    ops.load_scripts(real)
    ops.run_all(real, libraries.forget(scripts.library().name))
    assert ops.run(real, ops.transition("tidy", (f"t-{uuid.uuid4().hex}",), None, ("0", 1, "a", "b"), int)) == 0
    assert scripts.library().name in names(real)


def test_a_server_that_may_not_be_taught_says_so(real: Any, server_url: str) -> None:
    name, looked = f"u-{uuid.uuid4().hex}", ops.transition("tidy", ("t",), None, ("0", 1, "a", "b"), int)
    real.execute_command("ACL", "SETUSER", name, "on", ">secret", "~*", "&*", "+@all", "-function")
    url = server_url.replace("redis://", f"redis://{name}:secret@")

    async def look() -> int:
        async with await connect_async(url) as client:
            group = Group(client)
            try:
                return await group.run(looked)
            finally:
                await group.close()

    ops.run_all(real, libraries.forget(scripts.library().name))
    try:
        with connect(url) as client, pytest.raises(NoPermissionError, match="function"):
            ops.run(client, looked)
        with pytest.raises(NoPermissionError, match="function"):
            asyncio.run(look())
    finally:
        real.execute_command("ACL", "DELUSER", name)
