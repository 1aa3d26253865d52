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
        ("64:ff9b:1::5db8:d70e", PUBLIC),
        ("64:ff9b:1:5db8:d7:e00::", PUBLIC),
        ("64:ff9b:1::", None),
        ("64:ff9b:1:a00:0:100:808:808", PRIVATE),
        ("64:ff9b:1:5d0a:0:1:808:808", PRIVATE),
        ("64:ff9b:1:5d5d:7f:1:808:808", LOOPBACK),
        ("64:ff9b:1:5d5d:a9:fea9:fe00:0", None),
        ("64:ff9b:1:a9fe:a9:fe00:5db8:d70e", None),
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
        ("127.0x.0X.1", "127.0.0.1"),
        ("0x", "0.0.0.0"),
        ("0" * 5000 + "177.0.0.1", "127.0.0.1"),
        ("0x" + "0" * 5000 + "7F.1", "127.0.0.1"),
        ("037777777777", "255.255.255.255"),
        ("040000000000", None),
        ("0x100000000", None),
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


@pytest.mark.parametrize(
    "host", ["256.0.0.1", "08.0.0.1", "1.2.3.4.5", "1..2", "a.1", "a.1.", "a.0x", "9" * 5000]
)
def test_a_host_that_ends_in_a_number_is_no_name(host: str) -> None:
    """Browsers refuse it; what resolvers make of it is not known."""
    for policy in (AddressPolicy(PUBLIC), AddressPolicy(LOOPBACK)):
        assert not policy.allows_literal(host)
        assert not policy.allows_browser(host)
    allowed = AddressPolicy(PUBLIC, frozenset({host}))
    assert allowed.allows_literal(host)
    assert allowed.allows_browser(host)


@pytest.mark.parametrize("host", ["1.example", "a.b1", "a.0xg", "1.2.3.4.example"])
def test_a_host_that_begins_with_a_number_is_a_name(host: str) -> None:
    assert AddressPolicy(PUBLIC).allows_literal(host)
    assert AddressPolicy(PUBLIC).allows_browser(host)
