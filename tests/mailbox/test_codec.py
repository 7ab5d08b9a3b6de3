"""Bodies: what goes in comes out; anything else is one clear error."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.mailbox import codec
from postroom.mailbox.errors import BodyTooLarge, BodyUnreadable, InvalidInput

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


@given(values)
def test_what_goes_in_comes_out(value: object) -> None:
    assert codec.decode(codec.encode(value)) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_the_codecs_error(body: bytes) -> None:
    try:
        codec.decode(body)
    except BodyUnreadable as error:
        assert "\n" not in str(error)


@given(values, st.data())
def test_a_damaged_body_is_a_value_or_the_codecs_error(value: object, data: st.DataObject) -> None:
    body = bytearray(codec.encode(value))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    for damaged in (bytes(body), cut):
        try:
            codec.decode(damaged)
        except BodyUnreadable as error:
            assert error.code == "body_unreadable"


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_by_name(version: int) -> None:
    with pytest.raises(BodyUnreadable, match=f"format {version}, this version reads format 1"):
        codec.decode(bytes([version]) + msgpack.packb({}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01",
        b"\x01\xc1",
        b"\x01" + b"\x91" * 5000 + b"\xc0",  # nested too deep
        b"\x01\xdd\xff\xff\xff\xff",  # a list of four thousand million
        b"\x01\xc7\x01\x05\x00",  # an extension type
        b"\x01\x81\x90\x02",  # a map with a list for a key
        b"\x01\xa1\xff",  # text that is not UTF-8
        codec.encode(1) + b"\x00",  # something behind the value
    ],
)
def test_malformed_bodies_are_refused(body: bytes) -> None:
    with pytest.raises(BodyUnreadable):
        codec.decode(body)


def test_sizes_are_limited_both_ways() -> None:
    body = codec.encode("x" * 100)
    with pytest.raises(BodyTooLarge, match="103 bytes, the limit is 50"):
        codec.encode("x" * 100, limit=50)
    with pytest.raises(BodyUnreadable, match="limit"):
        codec.decode(body, limit=50)
    assert codec.encode("x" * 100, limit=len(body)) == body


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**64, "\ud800", {"a": print}])
def test_a_foreign_value_is_the_callers_mistake(value: object) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored"):
        codec.encode(value)


def test_a_value_nested_without_end_is_the_callers_mistake() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidInput):
        codec.encode(loop)
