"""Private authorities, the certificate of a client, and what is said where one is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

import sansmcp
import sansmcp_blocking
from sansmcp_cli import example
from sansmcp_local import (
    client_context,
    client_parts,
    connect_failure,
    lost_reason,
    verification_advice,
)

from ..asyncio.adapter_under_test import AsyncioClients
from ..blocking.adapter_under_test import BlockingClients
from ..bridge.processes import running
from ..cli.conftest import run_in_process
from ..tls import show, trust
from ..trio.adapter_under_test import TrioClients

ADAPTERS: dict[str, Callable[[], Any]] = {
    "asyncio": lambda: AsyncioClients("asyncio"),
    "uvloop": lambda: AsyncioClients("uvloop"),
    "trio": TrioClients,
    "blocking": BlockingClients,
}


@attrs.frozen
class Company:
    """A company with an authority of its own, and a server that asks clients for a certificate."""

    authority: trustme.CA
    url: str
    folder: Path

    @property
    def ca_file(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def cert(self) -> str:
        """The certificate of a client, and its key."""
        return str(self.folder / "client.pem")


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Generator[Company, None, None]:
    authority, folder = trustme.CA(), tmp_path_factory.mktemp("company")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    client = authority.issue_cert("ada@example.com")
    client.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    client.private_key_pem.write_to_path(str(folder / "key.pem"))
    client.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, authority.issue_cert("127.0.0.1"))
    trust(server, authority)
    server.verify_mode = ssl.CERT_REQUIRED
    settings: Any = {"http": ("127.0.0.1", 0), "graceful_timeout": 0.0, "ssl_context": server}
    with sansmcp_blocking.serve(example.blocking_app, **settings) as serving:
        yield Company(authority, serving.url, folder)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_files_of_a_company(adapter: str, company: Company) -> None:
    pair = (company.folder / "cert.pem", company.folder / "key.pem")
    for cert in (company.cert, pair):
        client = ADAPTERS[adapter]().connect(
            company.url, request_handlers={}, ca_file=company.ca_file, cert=cert
        )
        assert client.connected.transport == "streamable-http"
        client.close()


def test_the_command_and_the_bridge(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--ca", company.ca_file, "--cert", company.cert]
    called = run_in_process("call", *options, company.url, "echo", "text=hello")
    assert (called.status, called.out) == (0, "hello\n")
    probed = run_in_process("probe", *options, "--json", company.url)
    assert json.loads(probed.out)["transports"][0]["works"]
    monkeypatch.setenv("SSL_CERT_FILE", company.ca_file)
    assert run_in_process("list", "--cert", company.cert, company.url).status == 0
    with (
        running("bridge", "--to", "http", *options, company.url) as url,
        sansmcp_blocking.connect(url) as client,
    ):
        assert client.list_tools()["tools"]


def _name_in_a_directory(ca_file: str) -> str:
    """What ``openssl x509 -hash`` prints: a hash of the subject in lower case, without its header.

    Its attributes have less than 128 bytes in all, so the header has two.
    """
    subject = x509.load_pem_x509_certificate(Path(ca_file).read_bytes()).subject
    lower = [
        x509.NameAttribute(each.oid, " ".join(str(each.value).lower().split())) for each in subject
    ]
    return hashlib.sha1(x509.Name(lower).public_bytes()[2:]).digest()[3::-1].hex()


def test_a_directory_of_authorities(
    company: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{_name_in_a_directory(company.ca_file)}.0").symlink_to(company.ca_file)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert run_in_process("list", "--cert", company.cert, company.url).status == 0


def failure(adapter: str, url: str, **settings: Any) -> str:
    """The error of a client that would have time to try again."""
    with pytest.raises(sansmcp.CallError) as failed:
        ADAPTERS[adapter]().connect(url, request_handlers={}, connect_timeout=60.0, **settings)
    assert failed.value.attempts == ()
    return str(failed.value)


@contextlib.contextmanager
def refusing(
    company: Company, *, identity: str = "127.0.0.1", **issued: Any
) -> Generator[str, None, None]:
    """A server that wants a certificate, and after a refusal reads on until the client has left.

    So the client gets the alert. A server that closes at once may reset the connection first.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(context, company.authority.issue_cert(identity, **issued))
    trust(context, company.authority)
    context.verify_mode = ssl.CERT_REQUIRED

    def talk(connection: socket.socket) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_side=True)
        is_over = False
        with connection, contextlib.suppress(ConnectionError):
            while data := connection.recv(65536):
                incoming.write(data)
                try:
                    if not is_over:
                        tls.do_handshake()
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLError:
                    is_over = True
                connection.sendall(outgoing.read())

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                talk(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)  # a test that fails ends, too
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}/mcp"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_server_wants_a_certificate(adapter: str, company: Company) -> None:
    with refusing(company) as url:
        failed = failure(adapter, url, ca_file=company.ca_file)
    assert "the server wants a certificate of the client: name its file in cert (--cert)" in failed


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_server_refuses_the_certificate(adapter: str, company: Company, tmp_path: Path) -> None:
    other = trustme.CA().issue_cert("ada@example.com")
    file = tmp_path / "other.pem"
    other.private_key_and_cert_chain_pem.write_to_path(str(file))
    with refusing(company) as url:
        failed = failure(adapter, url, ca_file=company.ca_file, cert=file)
    assert "the server refuses the certificate of the client" in failed


SHOWS_CERTIFICATES = ssl.OPENSSL_VERSION_INFO >= (3,)
"""Before, OpenSSL keeps no certificate of a handshake that has failed."""


def name_of(authority: trustme.CA) -> str:
    """The name of an authority, as errors have it."""
    subject = x509.load_pem_x509_certificate(authority.cert_pem.bytes()).subject
    (unit,) = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    return f"OU={unit.value!s}"


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize(
    ("issued", "trusts", "advice"),
    [
        ({}, False, "to trust its authority, name the file"),
        ({"identity": "10.0.0.1"}, True, "the certificate is for other names"),
        ({"identity": "mcp.corp.example"}, True, "the certificate is for other names"),
        (
            {"not_after": datetime.now(timezone.utc) - timedelta(days=1)},
            True,
            "who runs the server has to renew it",
        ),
    ],
)
def test_the_certificate_of_the_server_is_refused(
    adapter: str, issued: Mapping[str, Any], trusts: bool, advice: str, company: Company
) -> None:
    """The authority is no advice where that is trusted already."""
    with refusing(company, **issued) as url:
        failed = failure(adapter, url, ca_file=company.ca_file if trusts else None)
    assert advice in failed
    assert ("authority" in failed.partition("; ")[2]) is not trusts
    assert ("ca_file (--ca)" in failed) is not trusts
    if SHOWS_CERTIFICATES:
        assert f"the certificate names {issued.get('identity', '127.0.0.1')!r}, and" in failed
        assert name_of(company.authority) in failed.partition("is signed by")[2]


def refused(server: ssl.SSLContext) -> str:
    """The error of a client that does a handshake in memory."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(to_client, to_server, server_hostname="mcp.example")
    peer = server.wrap_bio(to_server, to_client, server_side=True)
    with pytest.raises(ssl.SSLCertVerificationError) as failed:
        for each in (client, peer, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                each.do_handshake()
    return verification_advice(failed.value, "ca_file")


@pytest.mark.skipif(not SHOWS_CERTIFICATES, reason="needs OpenSSL 3")
def test_all_authorities_of_a_chain_are_named() -> None:
    """The one to trust is the last; the certificate itself is signed by the first."""
    root = trustme.CA()
    between = root.create_child_ca()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    show(server, between.issue_cert("a.example", "10.0.0.1"))
    shown = refused(server)
    assert "the certificate names 'a.example', '10.0.0.1', and is signed by" in shown
    assert 0 < shown.index(name_of(between)) < shown.index(name_of(root))


def self_signed(subject: str, names: list[str]) -> ssl.SSLContext:
    """A server with a certificate that no authority has signed."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=1))
    if names:
        others = x509.SubjectAlternativeName([x509.DNSName(each) for each in names])
        builder = builder.add_extension(others, critical=False)
    certificate = builder.sign(key, SHA256())
    pem = certificate.public_bytes(Encoding.PEM) + key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with trustme.Blob(pem).tempfile() as path:
        server.load_cert_chain(path)
    return server


@pytest.mark.skipif(not SHOWS_CERTIFICATES, reason="needs OpenSSL 3")
def test_a_certificate_cannot_fill_or_control_the_terminal() -> None:
    names = ["\x1b[2J.example", "b" * 5000, *(f"{number}.example" for number in range(2000))]
    shown = refused(self_signed("\x1b]0;\u202egnp\u3164.exe\x07", names))
    assert shown.isprintable()
    assert "\\x1b[2J.example" in shown
    assert "'2.example' and 1997 more, and is signed by 'CN=\\x1b]0;\\u202egnp\\u3164.exe" in shown
    assert len(shown) < 1000


@pytest.mark.skipif(not SHOWS_CERTIFICATES, reason="needs OpenSSL 3")
def test_a_certificate_without_names() -> None:
    shown = refused(self_signed("mcp.example", []))
    assert "the certificate names nothing, and is signed by 'CN=mcp.example'" in shown


def test_the_command_names_the_certificate(company: Company) -> None:
    with refusing(company, identity="mcp.corp.example") as url:
        listed = run_in_process("list", url)
    assert listed.status == 1
    assert "--ca" in listed.err
    if SHOWS_CERTIFICATES:
        assert "'mcp.corp.example'" in listed.err
        assert name_of(company.authority) in listed.err


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ca_file": "{folder}/missing.pem"}, "ca_file must be .*No such file"),
        ({"ca_file": "{folder}/key.pem"}, "ca_file must be .*certificate"),
        ({"ca_file": 3}, "ca_file must be "),
        ({"cert": "{folder}/missing.pem"}, "cert must be .*No such file"),
        ({"cert": "{folder}/ca.pem"}, "cert must be "),
        ({"cert": 3}, "cert must be "),
        ({"ca_file": "{folder}/ca.pem", "ssl_context": True}, "instead of ssl_context"),
    ],
)
def test_files_that_cannot_be_used(settings: dict[str, Any], why: str, company: Company) -> None:
    given: Any = {
        name: value.format(folder=company.folder) if isinstance(value, str) else value
        for name, value in settings.items()
    }
    if "ssl_context" in given:
        given["ssl_context"] = ssl.create_default_context()
    with pytest.raises(sansmcp.LocalProtocolError, match=f"(?s){why}"):
        client_parts(company.url, **given)


def test_a_key_with_a_password_asks_nobody(company: Company, tmp_path: Path) -> None:
    """OpenSSL would ask at the terminal, and wait."""
    locked, cert = tmp_path / "locked.pem", company.folder / "cert.pem"
    key = load_pem_private_key((company.folder / "key.pem").read_bytes(), None)
    locked.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(sansmcp.LocalProtocolError, match="the key has a password"):
        client_parts(company.url, cert=(cert, locked))


def test_other_failures_of_a_connection_say_nothing_of_certificates() -> None:
    error = ConnectionResetError("reset by peer")
    assert lost_reason(error, "reset by peer") == ("reset by peer", None)
    assert "cert" not in connect_failure(error, "reset by peer", "https://mcp.example/mcp")[0]
