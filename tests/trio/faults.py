"""Adapters that forget something: for each thing, the check that has to notice it.

What an adapter does not do, the machine does not see, and what it does not take from the machine is
not done; so the faults are planted between the two. ``python -m tests.trio.faults`` prints what the
checks say, as JSON. Each fault has a process of its own, for some let threads hang for ever.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import sansmcp
from sansmcp.effects import AbortExchange, StoreAppend, Wake
from sansmcp.events import CallCancelled, ClientResponseReceived, ServerRequestReceived
from sansmcp.process import ProcessExited, StderrData
from sansmcp.server.calls import RunningCall
from sansmcp_pytest import client_checks, server_checks
from sansmcp_trio._pool import Stream

from .adapter_under_test import TrioClient, TrioClients, TrioServers

PATIENCE = 3.0


def never_pulled(machine: type, method: str, *kinds: type) -> Callable[[], None]:
    """Effects or events of these kinds are not seen by the adapter."""
    pull = getattr(machine, method)

    def pull_others(self: Any) -> Any:
        while isinstance(found := pull(self), kinds):
            pass
        return found

    return lambda: setattr(machine, method, pull_others)


def never_fed(machine: type, method: str, *kinds: type) -> Callable[[], None]:
    """Parts of these kinds are not seen by the machine."""
    feed = getattr(machine, method)

    def feed_others(self: Any, *arguments: Any, now: float) -> None:
        if not isinstance(arguments[-1], kinds):
            feed(self, *arguments, now=now)

    return lambda: setattr(machine, method, feed_others)


def returns(owner: Any, method: str, value: Any) -> Callable[[], None]:
    """A method, or a property, does nothing but return this."""

    def stub(*_: Any, **__: Any) -> Any:
        return value

    is_property = isinstance(getattr(owner, method), property)
    return lambda: setattr(owner, method, property(stub) if is_property else stub)


def unlimited(subject: type, method: str) -> Callable[[], None]:
    """The limits are not passed on."""
    begin = getattr(subject, method)

    def begin_without(*arguments: Any, **settings: Any) -> Any:
        others = sansmcp.Limits(max_queued_events=1_000_000)
        return begin(*arguments, **{**settings, "limits": others})

    return lambda: setattr(subject, method, begin_without)


def in_a_group(subject: type = TrioClients, method: str = "connect") -> None:
    """What connect() raises comes out in a group."""
    connect = getattr(subject, method)

    def connect_in_a_group(*arguments: Any, **settings: Any) -> Any:
        try:
            return connect(*arguments, **settings)
        except sansmcp.CallError as error:
            raise RuntimeError("a group of one") from error

    setattr(subject, method, connect_in_a_group)


def used_once(connection: Any = sansmcp.ClientConnection) -> None:
    """Connections are not used again."""
    begin = connection.begin
    used: set[Any] = set()

    def begin_and_note(self: Any, effect: Any) -> bytes:
        data: bytes = begin(self, effect)
        used.add(self)
        return data

    connection.begin = begin_and_note
    connection.is_reusable = property(lambda self: self not in used)


def read_while_paused(connection: Any = sansmcp.ServerConnection) -> None:
    """A server takes PAUSED for NEED_DATA."""
    pull = connection.next_effect

    def next_effect(self: Any) -> Any:
        found = pull(self)
        return sansmcp.Idle.NEED_DATA if found is sansmcp.Idle.PAUSED else found

    connection.next_effect = next_effect


def told_inside(call: Any = RunningCall) -> None:
    """The client is told what has failed inside."""
    fail = call.respond_exception

    def fail_with(self: Any, error: Exception, *, now: float) -> None:
        fail(self, sansmcp.JsonRpcError(-32603, str(error)), now=now)

    call.respond_exception = fail_with


C, CC = sansmcp.Client, sansmcp.ClientConnection
S, SC = sansmcp.Server, sansmcp.ServerConnection
CLIENT_FAULTS = {
    "every_form_of_answer": returns(CC, "receive_eof", None),
    "nobody_is_there": never_fed(C, "receive_part", sansmcp.ConnectionLost),
    "a_server_that_says_nothing": in_a_group,
    "a_request_that_takes_too_long": never_pulled(C, "next_effect", AbortExchange),
    "a_call_that_takes_too_long": returns(C, "next_deadline", None),
    "events_that_nobody_takes": unlimited(TrioClients, "connect"),
    "output_that_nobody_takes": unlimited(TrioClients, "connect"),
    "frames_that_nobody_takes": unlimited(TrioClients, "connect"),
    "questions_during_a_call": never_pulled(C, "next_event", ServerRequestReceived),
    "a_call_that_is_cancelled": returns(C, "cancel", value=False),
    "a_call_on_http2_that_is_cancelled": returns(C, "cancel", value=False),
    "connections_that_were_closed": returns(Stream, "is_readable", value=False),
    "connections_are_used_again": used_once,
    "calls_with_a_session": returns(TrioClient, "close", None),
    "a_process_that_does_not_end": returns(os, "killpg", None),
    "a_process_that_crashes": never_fed(C, "receive_process_part", ProcessExited),
    "standard_error_is_read": never_fed(C, "receive_process_part", StderrData),
}
"""For each check what the adapter forgets that it has to notice."""

SERVER_FAULTS = {
    "progress_comes_as_it_happens": never_pulled(S, "next_effect", Wake),
    "time_passes_while_nothing_happens": returns(S, "next_deadline", None),
    "clients_that_are_too_slow": returns(SC, "next_deadline", None),
    "requests_sent_too_far_ahead": read_while_paused,
    "a_client_that_leaves_has_cancelled": returns(SC, "connection_lost", None),
    "a_call_that_is_cancelled": never_pulled(S, "next_event", CallCancelled),
    "handlers_that_ask": never_pulled(S, "next_event", ClientResponseReceived),
    "broken_streams_can_be_resumed": never_pulled(S, "next_effect", StoreAppend),
    "clients_that_do_not_read": returns(RunningCall, "is_above_high_water", value=False),
    "clients_that_take_nothing_are_dropped": unlimited(TrioServers, "serve"),
    "handlers_that_fail": told_inside,
    "streams_are_ended": returns(S, "shut_down", None),
    "calls_get_time_to_end": returns(S, "is_busy", value=False),
}
"""The same of servers."""


def complaint(check: Callable[..., None], subject: Any, plant: Callable[[], None]) -> str:
    """What a check says about an adapter with a fault; nothing if it does not notice."""
    plant()
    try:
        check(subject, patience=PATIENCE)
    except AssertionError as error:
        return str(error)
    return ""


def in_another_process(action: Callable[[], str]) -> Callable[[], str]:
    """Begin an action; the function that is returned waits for what it returns."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, action().encode()[:4096])
        os._exit(0)
    os.close(writer)

    def result() -> str:
        with open(reader, "rb") as file:
            return file.read().decode(errors="replace")

    return result


def main() -> None:
    """Plant all faults at the same time."""
    results: dict[str, Callable[[], str]] = {}
    for side, checks, subject, faults in (
        ("client", client_checks(), TrioClients(), CLIENT_FAULTS),
        ("server", server_checks(), TrioServers(), SERVER_FAULTS),
    ):
        for check in checks:
            if check.name in faults:
                look = partial(complaint, check, subject, faults[check.name])
                results[f"{side}: {check.name}"] = in_another_process(look)
    print(json.dumps({name: result() for name, result in results.items()}))


if __name__ == "__main__":
    main()
