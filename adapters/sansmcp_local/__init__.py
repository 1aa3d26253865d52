"""What adapters share: the machine they run on, event loops, and threads.

* Settings: :class:`ConnectOptions`, :class:`DriverOptions`, :class:`ServeOptions`, and
  :func:`explains`, which shows them in ``help()``.
* Machines with the randomness and the clock of this process: :func:`new_client`,
  :func:`client_parts`, :func:`proxies_of`, :func:`new_server`, :func:`server_parts`.
* The sockets, streams and files of ``serve()``: :func:`serve_plan`, :func:`address_of`,
  :func:`listen`, :func:`listen_unix`, :class:`StandardStreams`, :class:`StateFile`.
* Connections: :class:`ByteConnection`, :func:`pull`, :func:`is_readable`,
  :func:`connection_info`, :func:`peer_address`, :func:`principal_of`, :func:`set_options`,
  :func:`allowed_addresses`, :func:`connect_unix`, :func:`connect_failure`, :func:`lost_reason`,
  :func:`client_context`, :func:`verification_advice`, :func:`number_of`, :func:`text_of`.
* Server processes of clients: :class:`ServerProcess`, :class:`ChildProcess`,
  :class:`ProcessGroup`, :func:`process_arguments`, :func:`environment_of`, ``APART``,
  :func:`command_on_windows`, :func:`start_failure`, :func:`from_pipe`, :func:`to_pipe`.
* Several servers of a client: :func:`read_servers`, :func:`parse_servers`,
  :class:`SharedNames`, :class:`ServerGroup`.
* Files of this user only: :func:`check_private_folder`, :func:`check_private_file`.
* Logging: :func:`announce`, :func:`log_event`, :func:`log_first_failure`,
  :func:`log_unexpected`.
* Signals that end a program: ``STOPPING``, :func:`handlers_restored`, :func:`on_signals`.
* Command lines: :func:`unknown_options`.
* Ctrl-C in blocking code: :func:`ki_protected`, :func:`ki_unprotected`, :func:`interrupts_kept`,
  :func:`wait_in_parts`.
* On asyncio and trio: :func:`current_loop`, which returns a :class:`Loop` for either; clients
  (:class:`Client`, :class:`AwaitableClient`, :class:`ClientGroup`), their drivers
  (:class:`LoopClientDriver`, :class:`RequestTaskDriver`) and servers (:class:`RunningServer`,
  :class:`HttpServing`, :class:`HttpExchange`, :class:`Call`).
* In threads: clients (:class:`BlockingClient`, :class:`ConcurrentClient`,
  :class:`ThreadClientGroup`), their drivers (:class:`BlockingDriver`, :class:`ThreadClientDriver`,
  :class:`ConcurrentClientDriver`), handlers (:class:`ThreadPool`, :class:`ThreadCall`,
  :class:`ThreadedServerDriver`), and :func:`connect_fetch`, a client on any function that makes
  one HTTP request.
* Skills, for servers and for clients that verify what they read: :class:`SkillFolder`,
  :func:`parse_frontmatter`, which need the extra ``skills``.

A name is imported when it is used: what runs in threads needs no event loop, and what runs in one
imports asyncio or trio, whichever runs.
"""

from typing import TYPE_CHECKING

from sansmcp import _lazy

if TYPE_CHECKING:
    from ._certificates import client_context
    from ._client import (
        ENVIRONMENT,
        ClientParts,
        ConnectOptions,
        ConnectSettings,
        client_parts,
        new_client,
        proxies_of,
    )
    from ._command_line import unknown_options
    from ._failures import connect_failure, lost_reason, number_of, text_of, verification_advice
    from ._frontmatter import parse_frontmatter
    from ._interrupts import interrupts_kept, ki_protected, ki_unprotected, wait_in_parts
    from ._json import load_json
    from ._listening import BACKLOG, address_of, host_of_url, listen
    from ._log import announce, log_event, log_first_failure, log_unexpected
    from ._loop._asyncio import AsyncioTask, wait_all_shielded
    from ._loop._client import AwaitableClient, Client, TaskHandle
    from ._loop._client_driver import LoopClientDriver, RequestHandler, perform
    from ._loop._group import ClientGroup, StartTask
    from ._loop._http import HttpExchange, HttpServing
    from ._loop._loops import DeadlineTimer, Event, Loop, Task, current_loop
    from ._loop._machine import PendingResult, TimeoutScheduler
    from ._loop._request_tasks import RequestTaskDriver
    from ._loop._serving import THREADS, Call, RunningServer
    from ._loop._signals import called_at
    from ._machine import (
        ByteConnection,
        DriverOptions,
        DriverSettings,
        ServerParts,
        new_server,
        pull,
        server_parts,
    )
    from ._mcp_servers import ServerGroup
    from ._options import explains
    from ._pipes import from_pipe, to_pipe
    from ._private_files import check_private_file, check_private_folder
    from ._processes import (
        APART,
        START_ERRORS,
        ChildProcess,
        ProcessGroup,
        ServerProcess,
        command_on_windows,
        environment_of,
        process_arguments,
        start_failure,
    )
    from ._serve import Endpoint, ServeOptions, ServePlan, ServeSettings, serve_plan
    from ._server_files import ConfiguredServer, ServerFile, parse_servers, read_servers
    from ._server_names import SharedNames
    from ._signals import STOPPING, handlers_restored, on_signals
    from ._skill_folder import FolderFile, FolderSkill, SkillError, SkillFolder, check_name, quoted
    from ._sockets import (
        allowed_addresses,
        connection_info,
        is_readable,
        peer_address,
        principal_of,
        set_options,
    )
    from ._state_file import State, StateFile, read_state
    from ._streams import StandardStreams
    from ._threads._call import ThreadCall
    from ._threads._client import (
        BlockingClient,
        BlockingDriver,
        ConcurrentClient,
    )
    from ._threads._client_driver import (
        ConcurrentClientDriver,
        PendingCall,
        ThreadClientDriver,
        check_plain,
    )
    from ._threads._driver import ThreadedServerCall, ThreadedServerDriver
    from ._threads._fetch import Fetch, FetchClient, connect_fetch, on_abort
    from ._threads._group import ThreadClientGroup
    from ._threads._thread_pool import ThreadPool
    from ._unix import UNIX_DELAYS, connect_unix, listen_unix
else:
    __getattr__, __dir__ = _lazy.names(
        globals(),
        {
            "._certificates": ("client_context",),
            "._client": (
                "ENVIRONMENT",
                "ClientParts",
                "ConnectOptions",
                "ConnectSettings",
                "client_parts",
                "new_client",
                "proxies_of",
            ),
            "._command_line": ("unknown_options",),
            "._failures": (
                "connect_failure",
                "lost_reason",
                "number_of",
                "text_of",
                "verification_advice",
            ),
            "._frontmatter": ("parse_frontmatter",),
            "._interrupts": (
                "interrupts_kept",
                "ki_protected",
                "ki_unprotected",
                "wait_in_parts",
            ),
            "._json": ("load_json",),
            "._listening": (
                "BACKLOG",
                "address_of",
                "host_of_url",
                "listen",
            ),
            "._log": (
                "announce",
                "log_event",
                "log_first_failure",
                "log_unexpected",
            ),
            "._loop._asyncio": (
                "AsyncioTask",
                "wait_all_shielded",
            ),
            "._loop._client": (
                "AwaitableClient",
                "Client",
                "TaskHandle",
            ),
            "._loop._client_driver": (
                "LoopClientDriver",
                "RequestHandler",
                "perform",
            ),
            "._loop._group": (
                "ClientGroup",
                "StartTask",
            ),
            "._loop._http": (
                "HttpExchange",
                "HttpServing",
            ),
            "._loop._loops": (
                "DeadlineTimer",
                "Event",
                "Loop",
                "Task",
                "current_loop",
            ),
            "._loop._machine": (
                "PendingResult",
                "TimeoutScheduler",
            ),
            "._loop._request_tasks": ("RequestTaskDriver",),
            "._loop._serving": (
                "THREADS",
                "Call",
                "RunningServer",
            ),
            "._loop._signals": ("called_at",),
            "._machine": (
                "ByteConnection",
                "DriverOptions",
                "DriverSettings",
                "ServerParts",
                "new_server",
                "pull",
                "server_parts",
            ),
            "._mcp_servers": ("ServerGroup",),
            "._options": ("explains",),
            "._pipes": (
                "from_pipe",
                "to_pipe",
            ),
            "._private_files": ("check_private_file", "check_private_folder"),
            "._processes": (
                "APART",
                "START_ERRORS",
                "ChildProcess",
                "ProcessGroup",
                "ServerProcess",
                "command_on_windows",
                "environment_of",
                "process_arguments",
                "start_failure",
            ),
            "._serve": (
                "Endpoint",
                "ServeOptions",
                "ServePlan",
                "ServeSettings",
                "serve_plan",
            ),
            "._server_files": (
                "ConfiguredServer",
                "ServerFile",
                "parse_servers",
                "read_servers",
            ),
            "._server_names": ("SharedNames",),
            "._signals": (
                "STOPPING",
                "handlers_restored",
                "on_signals",
            ),
            "._skill_folder": (
                "FolderFile",
                "FolderSkill",
                "SkillError",
                "SkillFolder",
                "check_name",
                "quoted",
            ),
            "._sockets": (
                "allowed_addresses",
                "connection_info",
                "is_readable",
                "peer_address",
                "principal_of",
                "set_options",
            ),
            "._state_file": (
                "State",
                "StateFile",
                "read_state",
            ),
            "._streams": ("StandardStreams",),
            "._threads._call": ("ThreadCall",),
            "._threads._client": (
                "BlockingClient",
                "BlockingDriver",
                "ConcurrentClient",
            ),
            "._threads._client_driver": (
                "ConcurrentClientDriver",
                "PendingCall",
                "ThreadClientDriver",
                "check_plain",
            ),
            "._threads._driver": (
                "ThreadedServerCall",
                "ThreadedServerDriver",
            ),
            "._threads._fetch": (
                "Fetch",
                "FetchClient",
                "connect_fetch",
                "on_abort",
            ),
            "._threads._group": ("ThreadClientGroup",),
            "._threads._thread_pool": ("ThreadPool",),
            "._unix": (
                "UNIX_DELAYS",
                "connect_unix",
                "listen_unix",
            ),
        },
    )

__all__ = [
    "APART",
    "BACKLOG",
    "ENVIRONMENT",
    "START_ERRORS",
    "STOPPING",
    "THREADS",
    "UNIX_DELAYS",
    "AsyncioTask",
    "AwaitableClient",
    "BlockingClient",
    "BlockingDriver",
    "ByteConnection",
    "Call",
    "ChildProcess",
    "Client",
    "ClientGroup",
    "ClientParts",
    "ConcurrentClient",
    "ConcurrentClientDriver",
    "ConfiguredServer",
    "ConnectOptions",
    "ConnectSettings",
    "DeadlineTimer",
    "DriverOptions",
    "DriverSettings",
    "Endpoint",
    "Event",
    "Fetch",
    "FetchClient",
    "FolderFile",
    "FolderSkill",
    "HttpExchange",
    "HttpServing",
    "Loop",
    "LoopClientDriver",
    "PendingCall",
    "PendingResult",
    "ProcessGroup",
    "RequestHandler",
    "RequestTaskDriver",
    "RunningServer",
    "ServeOptions",
    "ServePlan",
    "ServeSettings",
    "ServerFile",
    "ServerGroup",
    "ServerParts",
    "ServerProcess",
    "SharedNames",
    "SkillError",
    "SkillFolder",
    "StandardStreams",
    "StartTask",
    "State",
    "StateFile",
    "Task",
    "TaskHandle",
    "ThreadCall",
    "ThreadClientDriver",
    "ThreadClientGroup",
    "ThreadPool",
    "ThreadedServerCall",
    "ThreadedServerDriver",
    "TimeoutScheduler",
    "address_of",
    "allowed_addresses",
    "announce",
    "called_at",
    "check_name",
    "check_plain",
    "check_private_file",
    "check_private_folder",
    "client_context",
    "client_parts",
    "command_on_windows",
    "connect_failure",
    "connect_fetch",
    "connect_unix",
    "connection_info",
    "current_loop",
    "environment_of",
    "explains",
    "from_pipe",
    "handlers_restored",
    "host_of_url",
    "interrupts_kept",
    "is_readable",
    "ki_protected",
    "ki_unprotected",
    "listen",
    "listen_unix",
    "load_json",
    "log_event",
    "log_first_failure",
    "log_unexpected",
    "lost_reason",
    "new_client",
    "new_server",
    "number_of",
    "on_abort",
    "on_signals",
    "parse_frontmatter",
    "parse_servers",
    "peer_address",
    "perform",
    "principal_of",
    "process_arguments",
    "proxies_of",
    "pull",
    "quoted",
    "read_servers",
    "read_state",
    "serve_plan",
    "server_parts",
    "set_options",
    "start_failure",
    "text_of",
    "to_pipe",
    "unknown_options",
    "verification_advice",
    "wait_all_shielded",
    "wait_in_parts",
]
