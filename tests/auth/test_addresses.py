"""Which addresses the requests of a flow may go to."""

from __future__ import annotations

import pytest

from sansmcp.addresses import AddressClass, AddressPolicy, classify_address, literal_address

LOOPBACK, PRIVATE, PUBLIC = AddressClass.LOOPBACK, AddressClass.PRIVATE, AddressClass.PUBLIC


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", LOOPBACK),
        ("127.1.2.3", LOOPBACK),
        ("::1", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("::127.0.0.1", LOOPBACK),
        ("64:ff9b::7f00:1", LOOPBACK),
        ("2002:7f00:1::", LOOPBACK),
        ("64:ff9b:1::7f00:1", LOOPBACK),
        ("::ffff:0:7f00:1", LOOPBACK),
        ("fec0::1", PRIVATE),
        ("10.0.0.1", PRIVATE),
        ("172.16.0.1", PRIVATE),
        ("192.168.1.1", PRIVATE),
        ("100.64.0.1", PRIVATE),
        ("192.0.0.8", PRIVATE),
        ("fd00::1", PRIVATE),
        ("::ffff:10.0.0.1", PRIVATE),
        ("2001:db8::1", PRIVATE),
        ("93.184.215.14", PUBLIC),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", PUBLIC),
        ("64:ff9b::5db8:d70e", PUBLIC),
        ("169.254.169.254", None),
        ("::ffff:169.254.169.254", None),
        ("64:ff9b::a9fe:a9fe", None),
        ("fe80::1", None),
        ("fe80::1%eth0", None),
        ("224.0.0.1", None),
        ("ff02::1", None),
        ("0.0.0.0", None),
        ("::", None),
        ("h.example", None),
        ("", None),
    ],
)
def test_classes(address: str, expected: AddressClass | None) -> None:
    assert classify_address(address) is expected


def test_teredo_counts_as_the_address_of_its_client() -> None:
    # The address of the client is inverted: 0xf5ffffff is 10.0.0.0, 0x80fffffe is 127.0.0.1.
    assert classify_address("2001:0:4136:e378:8000:63bf:80ff:fffe") is LOOPBACK


@pytest.mark.parametrize("nearest", AddressClass)
@pytest.mark.parametrize(
    ("address", "least"),
    [("127.0.0.1", LOOPBACK), ("10.0.0.1", PRIVATE), ("93.184.215.14", PUBLIC)],
)
def test_a_class_allows_the_more_public_ones(
    nearest: AddressClass, address: str, least: AddressClass
) -> None:
    assert AddressPolicy(nearest).allows("h", address) is (least >= nearest)


def test_hosts_can_be_allowed() -> None:
    policy = AddressPolicy(PUBLIC, frozenset({"idp.corp"}))
    assert policy.allows("IDP.corp", "10.0.0.1")
    assert not policy.allows("idp.corp", "169.254.169.254")
    assert not policy.allows("other.corp", "10.0.0.1")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("10.1.2", "10.1.0.2"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("[::ffff:127.0.0.1]", "::ffff:7f00:1"),
        ("::1", "::1"),
        ("256.0.0.1", None),
        ("1.2.3.256", None),
        ("1.2.3.4.5", None),
        ("4294967296", None),
        ("08.0.0.1", None),
        ("1..2", None),
        ("+1.2.3.4", None),
        ("1_0.0.0.1", None),
        ("localhost", None),
        ("face.b00c", None),
        ("1" * 30, None),
    ],
)
def test_literal_addresses(host: str, address: str | None) -> None:
    found = literal_address(host)
    assert found == address or str(found).replace("::ffff:127.0.0.1", "::ffff:7f00:1") == address


def test_literal_addresses_are_checked_without_a_resolver() -> None:
    policy = AddressPolicy(PUBLIC)
    assert not policy.allows_literal("0x7f.1")
    assert not policy.allows_literal("[::ffff:a9fe:a9fe]")
    assert policy.allows_literal("93.184.215.14")
    assert policy.allows_literal("h.example")
