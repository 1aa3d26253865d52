"""The state that a handler saves between two rounds is signed, for one request, for some time."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sansmcp import LocalProtocolError, RemoteProtocolError, StateSigner
from sansmcp.codecs import json
from sansmcp.input_required import HandlerInput, InputRequest, InputRequired

requirement = pytest.mark.requirement

KEY, OTHER = b"sixteen bytes at least", b"another key, for a change"
PARAMS = {"name": "add", "arguments": {"a": 1, "b": [2, {"c": "ü", "d": None}]}}
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def signer(*keys: bytes, clock: Clock | None = None) -> StateSigner:
    return StateSigner(keys=keys or (KEY,), clock=clock or Clock(), lifetime=60.0)


def signed_state(state: Any = "state", *keys: bytes) -> str:
    return signer(*keys).sign(state, "eve", "tools/call", PARAMS, name="n")


def is_refused(
    signed: str,
    *keys: bytes,
    principal: str = "eve",
    method: str = "tools/call",
    params: dict[str, Any] | None = None,
) -> bool:
    try:
        signer(*keys).verify(signed, principal, method, PARAMS if params is None else params)
    except RemoteProtocolError as error:
        assert (error.jsonrpc_code, error.reason) == (-32602, "bad_request_state")
        return True
    return False


@requirement("MRTR-S-007", "MRTR-S-013")
@given(state=JSON, params=st.dictionaries(st.text(), JSON, max_size=4))
def test_what_is_sealed_can_be_opened(state: Any, params: dict[str, Any]) -> None:
    signed = signer().sign(state, "eve", "x", params, name="n")
    assert signed.isascii()
    assert signer().verify(signed, "eve", "x", params) == state


@given(params=st.dictionaries(st.text(), JSON, max_size=4), data=st.data())
def test_the_order_of_names_does_not_matter(params: dict[str, Any], data: st.DataObject) -> None:
    signed = signer().sign(1, "", "x", params, name="n")
    again = dict(data.draw(st.permutations(list(params.items()))))
    assert signer().verify(signed, "", "x", again) == 1


@requirement("MRTR-S-012", "MRTR-S-014")
@given(signed=st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_garbage_is_refused(signed: str) -> None:
    assert is_refused(signed)


@requirement("MRTR-S-013", "MRTR-S-014")
@given(index=st.integers(0), change=st.integers(1, 255))
def test_a_change_is_noticed(index: int, change: int) -> None:
    raw = bytearray(base64.urlsafe_b64decode(signed_state()))
    raw[index % len(raw)] ^= change
    assert is_refused(base64.urlsafe_b64encode(raw).decode())


@requirement("MRTR-S-016", "MRTR-S-018", "MRTR-S-020")
def test_it_is_for_one_request_of_one_principal() -> None:
    signed = signed_state()
    assert not is_refused(signed)
    assert is_refused(signed, principal="mallory")
    assert is_refused(signed, principal="")
    assert is_refused(signed, method="prompts/get")
    assert is_refused(signed, params={})
    assert is_refused(signed, params={**PARAMS, "more": None})
    assert is_refused(signed, params={**PARAMS, "arguments": {"a": 2}})


def test_what_belongs_to_the_round_may_differ() -> None:
    more = {"inputResponses": {"x": 1}, "requestState": "y", "_meta": {"z": 1}}
    assert not is_refused(signed_state(), params={**PARAMS, **more})


@requirement("MRTR-S-017")
def test_it_expires() -> None:
    clock = Clock()
    short_lived = signer(clock=clock)
    signed = short_lived.sign(1, "", "x", {}, name="n")
    clock.now += 59
    assert short_lived.verify(signed, "", "x", {}) == 1
    clock.now += 1
    with pytest.raises(RemoteProtocolError, match="expired") as caught:
        short_lived.verify(signed, "", "x", {})
    assert caught.value.reason == "bad_request_state"


def test_keys_can_be_changed() -> None:
    old = signed_state("s", KEY)
    assert not is_refused(old, OTHER, KEY)
    assert is_refused(old, OTHER)
    assert is_refused(signed_state("s", OTHER, KEY), KEY)


@pytest.mark.parametrize("keys", [(), (b"",), (b"fifteen bytes..",), (KEY, b"short")])
def test_keys_that_are_too_short(keys: tuple[bytes, ...]) -> None:
    with pytest.raises(LocalProtocolError, match="16 bytes"):
        StateSigner(keys=keys, clock=Clock())


@pytest.mark.parametrize("keys", [b"sixteen bytes...", ("sixteen letters.",), "sixteen letters."])
def test_what_is_no_tuple_of_keys(keys: Any) -> None:
    with pytest.raises(LocalProtocolError, match="keys must be a tuple of bytes"):
        StateSigner(keys=keys, clock=Clock())


def test_keys_change_while_a_signer_is_used() -> None:
    keys = [OTHER]
    changing = StateSigner(keys=lambda: tuple(keys), clock=Clock())
    old = changing.sign("s", "", "x", {}, name="n")
    keys.insert(0, KEY)
    new = changing.sign("s", "", "x", {}, name="n")
    assert [changing.verify(each, "", "x", {}) for each in (old, new)] == ["s", "s"]
    assert signer().verify(new, "", "x", {}) == "s"
    with pytest.raises(LocalProtocolError, match="keys must be a tuple of bytes"):
        StateSigner(keys=lambda: (), clock=Clock())


def test_keys_are_not_shown() -> None:
    assert "sixteen" not in repr(signer())


@pytest.mark.parametrize("state", [object(), float("nan"), "\ud800"])
def test_a_state_is_a_json_value(state: Any) -> None:
    with pytest.raises(LocalProtocolError):
        signed_state(state)


def test_what_is_equal_is_written_equally() -> None:
    value = {"b": [1, 1.5, "ü", {"d": None, "c": True}], "a": "\u2028"}
    assert json.encode_sorted(value).decode() == (
        '{"a":"\u2028","b":[1,1.5,"ü",{"c":true,"d":null}]}'
    )


def test_the_plain_values() -> None:
    assert InputRequired() == InputRequired({}, None)
    assert InputRequest("roots/list").params == {}
    assert HandlerInput() == HandlerInput({}, None)
