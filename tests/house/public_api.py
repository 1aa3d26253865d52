"""The public API: what belongs to it, for whom, how stable it is, and its signatures as text.

``python -m tests.house.public_api`` writes ``public_api.txt``, with a line for each public name and
its signature, and the tables of ``docs/stability.md``. The reference of the documentation has the
same groups.

The signatures are read from the sources with griffe, so the text is the same on every Python. It is
installed with the extra ``dev``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import attrs
import griffe

from .sources import ROOT

GOLDEN = Path(__file__).with_suffix(".txt")
PAGE = ROOT / "docs" / "stability.md"


@attrs.frozen
class Group:
    """Public names of one package, or all of them."""

    title: str
    module: str
    stability: str
    names: tuple[str, ...] = ()
    """Empty for all that the module exports and no other group has."""


def _group(title: str, module: str, stability: str, names: str = "") -> Group:
    return Group(title, module, stability, tuple(sorted(names.split())))


USERS = (
    _group("Tools from functions", "sansmcp_tools", "stable"),
    _group("asyncio", "sansmcp_asyncio", "stable"),
    _group("Trio", "sansmcp_trio", "stable"),
    _group("Threads, without an event loop", "sansmcp_blocking", "stable"),
    _group("Clients on httpx", "sansmcp_httpx", "stable"),
    _group("Clients in Pyodide", "sansmcp_pyodide", "provisional"),
    _group("Within ASGI servers", "sansmcp_asgi", "stable"),
    _group("Within WSGI servers", "sansmcp_wsgi", "stable"),
    _group(
        "Applications and servers",
        "sansmcp",
        "stable",
        """
        Access App Authenticator BaseCall ConnectionInfo DpopProof Handler InputRequest
        InputRequired Limits MemoryStore PeerCredentials PeerHandle ProtectedResource RateLimit
        RateStore Refusal RequestHead RequestHeaders SecurityPolicy ServerOptions ServerSettings
        StateSigner StaticTokens
        """,
    ),
    _group(
        "Clients",
        "sansmcp",
        "stable",
        """
        Authorization CallSettings ClientCredentials ClientOptions ClientSettings
        CredentialStorage CredentialsKey IdentityAssertion JwtAssertion JwtSigner KnownServers
        Login MemoryCredentials OAuthClient OriginatingCall ReconnectPolicy ServerRequest Skill
        SkillFile
        """,
    ),
    _group(
        "Events of a client",
        "sansmcp.events",
        "stable",
        """
        AuthorizationNeeded CallCompleted CallFailed ClientEvent Closed Connected InvalidLine
        MessageUndelivered ProgressReceived ProtocolViolation Reconnecting ServerNotified
        ServerRequestCancelled ServerRequestReceived SessionExpired StandaloneStreamClosed
        StderrLine TaskUpdated ToolRejected
        """,
    ),
    _group(
        "Errors",
        "sansmcp",
        "stable",
        """
        AuthorizationFailed CallError Disconnected InvalidResponse JsonRpcError LocalProtocolError
        NegotiationFailed ProcessEnded ProtocolError RemoteProtocolError RequestCancelled
        RequestRefused RequestTimeout SessionLost SkillMismatch TaskCancelled TaskLost ToolFailed
        """,
    ),
    _group("Types of results and parameters", "sansmcp.schema", "stable"),
    _group(
        "Settings of adapters",
        "sansmcp_local",
        "stable",
        """
        ConnectOptions ConnectSettings DriverOptions DriverSettings ServeOptions ServeSettings
        """,
    ),
    _group("Revisions", "sansmcp", "stable", "REVISIONS Era Revision"),
    _group("Stores", "sansmcp_stores", "stable"),
    _group("Traces", "sansmcp.trace", "stable"),
    _group("Logs of requests", "sansmcp_telemetry", "stable", "RequestFilter send_logs"),
    _group(
        "Verifiers of access tokens",
        "sansmcp_auth",
        "provisional",
        "IntrospectionVerifier JoseSigner JwtVerifier fetch",
    ),
    _group(
        "Logins",
        "sansmcp_auth",
        "provisional",
        "FileCredentials KeyringCredentials LoopbackLogin print_login",
    ),
    _group("OpenTelemetry", "sansmcp_telemetry", "provisional"),
    _group(
        "Folders of skills",
        "sansmcp_local",
        "provisional",
        """
        FolderFile FolderSkill SkillError SkillFolder check_name parse_frontmatter quoted
        """,
    ),
    _group(
        "Fixtures for pytest",
        "sansmcp_pytest",
        "provisional",
        "Client Connect Fault Network PendingCall Serve Server",
    ),
    _group("The bridge", "sansmcp_bridge", "preview"),
)
"""What programs use that serve and call."""

AUTHORS = (
    _group(
        "Codecs",
        "sansmcp",
        "stable",
        """
        Batch Envelope ErrorResponse EventId EventSource Message NdjsonDecoder Notification Request
        Response SseDecoder SseEvent Url decode_envelope decode_header_value decode_json
        decode_message encode_event encode_header_value encode_json encode_line encode_message
        """,
    ),
    _group(
        "Interfaces of stores",
        "sansmcp",
        "provisional",
        "AppendResult AsyncStore Entry EntryKind Page Store StreamKey WatchableStore",
    ),
    _group(
        "Machines and their drivers",
        "sansmcp",
        "provisional",
        """
        BodyData BodyEnd Client ClientConnection ClientDriver ConnectionLost ConnectionPool Idle
        Observer Peer PendingResult ResponseHead Secret Server ServerCall ServerConnection
        ServerDriver ServerExchange ServerPipe Session
        """,
    ),
    _group(
        "Events of a server",
        "sansmcp.events",
        "provisional",
        """
        AccessExpired CallCancelled CallReceived ClientNotified ClientResponseReceived ClocksDiffer
        ListenReceived ListenersChanged RefusalSent ResponseUndelivered ServerEvent SessionClosed
        SessionOpened StoreFailed
        """,
    ),
    _group("Effects", "sansmcp.effects", "provisional"),
    _group("Parts of processes", "sansmcp.process", "provisional"),
    _group("Virtual time, checks of stores", "sansmcp.testing", "provisional"),
    _group("Checks of adapters", "sansmcp_pytest", "provisional"),
    _group("What adapters share", "sansmcp_local", "preview"),
    _group(
        "Adapters with an event loop",
        "sansmcp_local",
        "preview",
        """
        AsyncioTask AwaitableClient Call Client ClientGroup DeadlineTimer Event HttpExchange
        HttpServing Loop LoopClientDriver PendingResult RequestHandler RequestTaskDriver
        RunningServer StartTask THREADS Task TaskHandle TimeoutScheduler called_at current_loop
        perform wait_all_shielded
        """,
    ),
    _group(
        "Adapters with threads",
        "sansmcp_local",
        "preview",
        """
        BlockingClient BlockingDriver ConcurrentClient ConcurrentClientDriver Fetch FetchClient
        PendingCall ThreadCall ThreadClientDriver ThreadClientGroup ThreadPool ThreadedServerCall
        ThreadedServerDriver check_plain connect_fetch on_abort
        """,
    ),
)
"""What those use who write drivers, stores, frameworks and gateways."""

NOT_PUBLIC = ("sansmcp_cli",)
"""Packages whose names are not to be imported: the command is what is public."""

_SERVING = frozenset(
    {"close", "disconnect_streams", "has_ended", "publish", "stop", "stopped", "url", "wait"}
    | {"wait_closed"}
)
_OWN_CALL = frozenset({"__init__", "cancel", "now", "run_pending", "wait_for_answer"})

USED: dict[str, frozenset[str]] = {
    "Bridge": _SERVING,
    "RunningServer": _SERVING,
    "WsgiApp": _SERVING | {"__init__"},
}
"""What a program uses of the classes that are drivers, too."""

OF_DRIVERS: dict[str, frozenset[str]] = {
    "App": frozenset(
        {"async_functions", "declared_capabilities", "handler_of", "identity", "is_inline"}
        | {"initialize_result", "notification_handler_of", "options_of", "scopes_of", "server_info"}
    ),
    "BaseCall": _OWN_CALL - {"cancel"},
    "BlockingClient": frozenset({"__init__"}),
    "Call": _OWN_CALL,
    "Client": frozenset({"__init__"}),
    "ClientGroup": frozenset({"has_listed", "leave_out", "set_tools", "settings_of"}),
    "ClientOptions": frozenset(
        {"capped_probe_timeout", "declared_capabilities", "handling", "handshake_versions", "info"}
        | {"modern_versions", "offers_multi_turn", "usable_transports", "with_tasks"}
    ),
    "Context": frozenset({"__init__"}),
    "PendingCall": frozenset({"__init__", "handle", "is_done", "set_exception", "set_result"}),
    "ServerOptions": frozenset({"offers_multi_turn"}),
    "SteppedClient": frozenset({"__init__"}),
    "TaskHandle": frozenset({"__init__"}),
    "ThreadContext": frozenset({"__init__"}),
    "Tools": frozenset({"async_functions"}),
}
"""What a program does not use of other classes."""


def packages() -> list[str]:
    """The names of all packages in the wheel."""
    return ["sansmcp", *sorted(path.parent.name for path in (ROOT / "adapters").glob("*/py.typed"))]


@functools.cache
def _loader() -> griffe.GriffeLoader:
    loader = griffe.GriffeLoader(search_paths=[ROOT, ROOT / "adapters"])
    for name in packages():
        loader.load(name)
    loader.resolve_aliases()
    return loader


def exports(module: str) -> list[str]:
    """The names that a module exports, sorted."""
    found = _loader().modules_collection[module]
    if found.exports is not None:
        return sorted(str(name) for name in found.exports)
    return sorted(
        name for name, each in found.members.items() if name[0] != "_" and not each.is_alias
    )


def names_of(group: Group) -> tuple[str, ...]:
    """The names of a group."""
    others = {
        name for each in (*USERS, *AUTHORS) if each.module == group.module for name in each.names
    }
    return group.names or tuple(name for name in exports(group.module) if name not in others)


def is_used(kind: str, member: str) -> bool:
    """True if a program uses a public member of a class, and not only its driver."""
    if kind in USED:
        return member in USED[kind]
    return member not in OF_DRIVERS.get(kind, ())


def is_function(module: str, name: str) -> bool:
    """True if a public name is a function."""
    return isinstance(_final(_loader().modules_collection[module][name]), griffe.Function)


def members_of(module: str, kind: str) -> list[str]:
    """All members of a class, those of its base classes, too; none of what is no class."""
    found = _final(_loader().modules_collection[module][kind])
    return [*found.all_members] if isinstance(found, griffe.Class) else []


def settings_of(module: str, name: str) -> str:
    """The class of the settings that a function, or the initialiser of a class, takes by name."""
    found = _final(_loader().modules_collection[module][name])
    if isinstance(found, griffe.Class):
        found = _final(found.all_members["__init__"]) if "__init__" in found.all_members else found
    if not isinstance(found, griffe.Function) or not is_used(name, "__init__"):
        return ""
    last = str(([*found.parameters] or [griffe.Parameter("")])[-1].annotation)
    return last.removeprefix("Unpack[").rstrip("]").rpartition(".")[2]


def render() -> str:
    """The text of all public names."""
    parts: list[str] = []
    known = {_path(group, name) for group in (*USERS, *AUTHORS) for name in names_of(group)}
    for group in (*USERS, *AUTHORS):
        lines = [f"# {group.module}, {group.title} ({group.stability})"]
        for name in names_of(group):
            lines += _lines(group, name, known)
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def tables() -> dict[str, str]:
    """The tables of the page, by their titles."""
    return {"packages": _packages(), "users": _table(USERS), "authors": _table(AUTHORS)}


def page(text: str) -> str:
    """The page with its tables as they should be."""
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n{table}\n{end}{after}"
    return text


def _packages() -> str:
    """Each package that is imported by name, and the first line of its docstring."""
    rows = ["| Package | |", "| --- | --- |"]
    for name in packages():
        if name not in NOT_PUBLIC:
            docstring = _loader().modules_collection[name].docstring
            line = docstring.value.partition("\n")[0] if docstring is not None else ""
            rows.append(f"| `{name}` | {line.replace('``', '`')} |")
    return "\n".join(rows) + "\n"


def _table(groups: tuple[Group, ...]) -> str:
    rows = ["| | Import from | Stability | Names |", "| --- | --- | --- | --- |"]
    for group in groups:
        names = ", ".join(f"`{name}`" for name in names_of(group))
        if len(names_of(group)) > 60:
            names = "all that it exports"
        rows.append(f"| {group.title} | `{group.module}` | {group.stability} | {names} |")
    return "\n".join(rows) + "\n"


def _final(found: griffe.Object | griffe.Alias) -> griffe.Object:
    return found.final_target if isinstance(found, griffe.Alias) else found


def _path(group: Group, name: str) -> str:
    return _final(_loader().modules_collection[group.module][name]).path


def _lines(group: Group, name: str, known: set[str]) -> Iterator[str]:
    found = _final(_loader().modules_collection[group.module][name])
    where = f"{group.module}.{name}"
    if not isinstance(found, griffe.Class):
        yield from _member(where, found)
        return
    if group.module == "sansmcp.schema":  # the file that is made has the members
        yield f"class {where}"
        return
    names = [str(base) for base in found.bases]
    bases = ", ".join(each for each in names if not each.startswith("_") and each not in _INNER)
    yield f"class {where}({bases})" if bases else f"class {where}"
    members = found.all_members if group in USERS else found.members
    for each in sorted(members):
        member = members[each]
        home = _final(member).parent
        is_said = home is not found and home is not None and home.path in known - _drivers()
        if (each[0] != "_" or each == "__init__") and is_used(name, each) and not is_said:
            yield from _member(f"{where}.{each}", _final(member))


_INNER = {"Shown", "Value"}
"""Base classes with the methods that attrs would generate."""


@functools.cache
def _drivers() -> set[str]:
    """The classes that are for authors: what users inherit from these is told again."""
    return {_path(group, name) for group in AUTHORS for name in names_of(group)}


def _member(where: str, found: griffe.Object) -> Iterator[str]:
    if isinstance(found, griffe.Function):
        for each in found.overloads or [found]:
            yield f"{where}({_parameters(each)}) -> {each.returns}"
    elif isinstance(found, griffe.Attribute):
        kind = f": {found.annotation}" if found.annotation is not None else ""
        value = " ".join(str(found.value).split()) if found.value is not None else ""
        is_made = isinstance(found.parent, griffe.Class) and not kind and "(" in value
        is_shown = value and not is_made and "field(" not in value
        yield where + kind + (f" = {value}" if is_shown else "")
    else:
        yield where


def _parameters(function: griffe.Function) -> str:
    parts: list[str] = []
    by_name = False
    for each in function.parameters:
        if each.name in ("self", "cls"):
            continue
        if each.kind is griffe.ParameterKind.keyword_only and not by_name:
            parts.append("*")
        by_name |= each.kind in (
            griffe.ParameterKind.keyword_only,
            griffe.ParameterKind.var_positional,
        )
        stars = {"variadic positional": "*", "variadic keyword": "**"}
        text = stars.get(each.kind.value if each.kind else "", "") + each.name
        if each.annotation is not None:
            text += f": {each.annotation}"
        if each.default is not None and not stars.get(each.kind.value if each.kind else ""):
            text += f" = {each.default}"
        parts.append(text)
    return ", ".join(parts)


def write() -> None:
    """Write the file of the public API, and the tables of the page."""
    GOLDEN.write_text(render(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write()
