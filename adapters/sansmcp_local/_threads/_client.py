"""The methods of blocking clients, written once for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, overload

import sansmcp
from sansmcp import typed_results
from sansmcp.base_client import (
    OnProgress,
    ping_method,
    prompt_call,
    resource_call,
    task_cancellation,
    task_id_of,
    tool_call,
)
from sansmcp.codecs.conversion import check_convertible
from sansmcp.errors import check_type
from sansmcp.events import ClientEvent, Connected
from sansmcp.messages import Params
from sansmcp.types import Self, Unpack, redact

from ._client_driver import ConcurrentClientDriver, PendingCall

Converted = TypeVar("Converted")


class BlockingDriver(Protocol):
    """Waits for what the methods of a client begin.

    Attributes:
        core: the machine.
    """

    core: sansmcp.Client

    @property
    def connected(self) -> Connected:
        """The negotiated version, and the server's info, capabilities and instructions."""
        ...

    @property
    def is_closed(self) -> bool:
        """True after the end of the session, however it ended."""
        ...

    @property
    def shown(self) -> str:
        """The state of the client, and the name of the server, for a repr()."""
        ...

    def call(
        self,
        method: str,
        params: Params | None,
        on_progress: OnProgress[None] | None,
        settings: sansmcp.CallSettings,
        *,
        detach: bool = False,
    ) -> Any:
        """Send a request, and wait for its result; see :meth:`BlockingClient.call`.

        Args:
            method, params, on_progress, settings: as in :meth:`BlockingClient.call`.
            detach: return the handle of a task, if the server makes one of the call.
        """

    def attach(
        self,
        task_id: str,
        on_progress: OnProgress[None] | None,
        timeout: float | None,
        total_timeout: float | None,
    ) -> Any:
        """Wait for the result of a task; see :meth:`TaskHandle.result`."""

    def notify(self, method: str, params: Params | None, meta: Mapping[str, Any] | None) -> None:
        """Send a notification. Raises LocalProtocolError if it cannot be sent."""

    def complete_login(self, url: str) -> bool:
        """Continue a login; see :meth:`BlockingClient.complete_login`."""
        ...

    def close(self) -> None:
        """End the session; see :meth:`BlockingClient.close`."""


class TaskHandle:
    """A call that the server runs as a task, or its result if the server had that at once.

    The task belongs to the server. It goes on if a method of this object is interrupted or times
    out, and after the client has closed.

    Attributes:
        id: the id of the task, with which :meth:`BlockingClient.task` of any client of the same
            server and user gives this object again. None if the result is here already. Keep it out
            of logs: without authentication it is all that is needed to read the result.
        value: the result; None if there is an id.
    """

    def __init__(self, driver: BlockingDriver, id: str | None, value: Any = None) -> None:
        self._driver = driver
        self.id = id
        self.value: Any = value if id is None else None

    def __repr__(self) -> str:
        return f"TaskHandle(id={redact(self.id)})"

    def result(
        self,
        *,
        on_progress: OnProgress[None] | None = None,
        timeout: float | None = None,
        total_timeout: float | None = None,
    ) -> Any:
        """Wait for the end of the call, and return its result.

        Args:
            on_progress, timeout, total_timeout: as in :meth:`BlockingClient.call`.

        Raises:
            JsonRpcError: the call ended with an error.
            TaskCancelled: the task was cancelled.
            TaskLost: the server no longer knows the task.
            CallError: the wait ended in another way, and the task may go on.
        """
        if self.id is None:
            return self.value
        return self._driver.attach(self.id, on_progress, timeout, total_timeout)

    def cancel(self) -> Any:
        """Ask the server to cancel the task; send nothing if the result is here already.

        The task may still end with a result. Raises the exceptions of :meth:`BlockingClient.call`.
        """
        if self.id is None:
            return self.value
        return self._driver.call(*task_cancellation(self.id), None, {})


class BlockingClient:
    """A blocking client; ``connect()`` makes it. A context manager that closes it."""

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._driver.shown}>"

    @property
    def connected(self) -> Connected:
        """The negotiated version, and the server's info, capabilities and instructions."""
        return self._driver.connected

    @property
    def is_closed(self) -> bool:
        """True after the client was closed, or its connection was lost for good."""
        return self._driver.is_closed

    @property
    def has_tools(self) -> bool:
        """True if the server has declared the capability for tools."""
        return typed_results.TOOLS.capability in self.connected.capabilities

    @overload
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    def call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Send a request, and wait for its result. Interrupting the wait cancels the request.

        Args:
            method: any method of MCP, such as ``"tools/call"``.
            params: its parameters.
            on_progress: a plain function, called with each ProgressReceived. If it raises, the call
                is cancelled, and this method raises the same.
            result_type: the type to which the result is converted: a msgspec struct, a dataclass, a
                TypedDict, or a class with ``model_validate``, such as a pydantic model.
            settings: ``timeout``, ``total_timeout``, ``reset_on_progress``, ``idempotent`` and
                ``meta``, which :meth:`sansmcp.Client.call` explains.

        Returns:
            The result of the response.

        Raises:
            CallError: the call failed; the subclass says how. InvalidResponse: the result does not
                fit ``result_type``.
            LocalProtocolError: an argument is wrong, or another thread uses the client.
        """
        if result_type is not None:
            check_convertible(result_type)
        result = self._driver.call(method, params, on_progress, settings)
        if result_type is None:
            return result
        return typed_results.typed_result(result, result_type, method)

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any: ...

    @overload
    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Converted],
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Converted: ...

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        result_type: type[Any] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> Any:
        """Call a tool, and wait for its result.

        Without ``result_type``, the result of a tool that ran and failed has ``isError`` true, and
        nothing is raised.

        Args:
            name: the name of the tool.
            arguments: its arguments by name; None for none.
            on_progress: as in :meth:`call`.
            result_type: the type to which the structured content of the result is converted; see
                :meth:`call`.
            settings: as in :meth:`call`.

        Returns:
            The result, a JSON object; with ``result_type`` a value of that type.

        Raises:
            ToolFailed: ``result_type`` is given, and the tool failed.
            CallError: as in :meth:`call`. InvalidResponse: there is no structured content, or it
                does not fit ``result_type``.
            LocalProtocolError: an argument is wrong, or another thread uses the client.
        """
        if result_type is not None:
            check_convertible(result_type)
        call = tool_call(name, arguments)
        result = self._driver.call(*call, on_progress, settings)
        if result_type is None:
            return result
        return typed_results.typed_tool_result(result, result_type)

    def list_tools(self, cursor: str | None = None) -> sansmcp.schema.ListToolsResult:
        """Return a page of tools.

        Pass ``nextCursor`` of the result, if it has one, as ``cursor`` to get the next page. The
        exceptions are those of :meth:`call`.
        """
        page = typed_results.TOOLS.page(cursor)
        result: sansmcp.schema.ListToolsResult = self.call(*page)
        return result

    def list_resources(self, cursor: str | None = None) -> sansmcp.schema.ListResourcesResult:
        """Return a page of resources; ``cursor`` is as in :meth:`list_tools`."""
        result: sansmcp.schema.ListResourcesResult = self.call(
            *typed_results.RESOURCES.page(cursor)
        )
        return result

    def list_resource_templates(
        self, cursor: str | None = None
    ) -> sansmcp.schema.ListResourceTemplatesResult:
        """Return a page of resource templates; ``cursor`` is as in :meth:`list_tools`."""
        result: sansmcp.schema.ListResourceTemplatesResult = self.call(
            *typed_results.RESOURCE_TEMPLATES.page(cursor)
        )
        return result

    def read_resource(self, uri: str) -> sansmcp.schema.ReadResourceResult:
        """Return the contents of a resource."""
        result: sansmcp.schema.ReadResourceResult = self.call(*resource_call(uri))
        return result

    def list_prompts(self, cursor: str | None = None) -> sansmcp.schema.ListPromptsResult:
        """Return a page of prompts; ``cursor`` is as in :meth:`list_tools`."""
        page = typed_results.PROMPTS.page(cursor)
        result: sansmcp.schema.ListPromptsResult = self.call(*page)
        return result

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None
    ) -> sansmcp.schema.GetPromptResult:
        """Return the messages of a prompt for these arguments."""
        result: sansmcp.schema.GetPromptResult = self.call(*prompt_call(name, arguments))
        return result

    def ping(self, **settings: Unpack[sansmcp.CallSettings]) -> Any:
        """Check that the server responds; the content of the result does not matter.

        2026-07-28 has no ``ping``, so this sends ``server/discover`` there.
        """
        return self.call(ping_method(self.connected.version), **settings)

    def tools(self) -> Iterator[sansmcp.schema.Tool]:
        """Iterate over all tools; each page is requested when it is needed.

        The iterator raises the exceptions of :meth:`call`, and InvalidResponse if a page has the
        cursor of its own, or if there are more than 1,000 pages.
        """
        return self._items(typed_results.TOOLS)

    def prompts(self) -> Iterator[sansmcp.schema.Prompt]:
        """Iterate over all prompts, as :meth:`tools` does."""
        return self._items(typed_results.PROMPTS)

    def resources(self) -> Iterator[sansmcp.schema.Resource]:
        """Iterate over all resources, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCES)

    def resource_templates(self) -> Iterator[sansmcp.schema.ResourceTemplate]:
        """Iterate over all resource templates, as :meth:`tools` does."""
        return self._items(typed_results.RESOURCE_TEMPLATES)

    def skills(self) -> Iterator[sansmcp.Skill]:
        """Iterate over the skills that the server lists; it may have others, too.

        No file is read. The iterator raises LocalProtocolError if the server declares no skills,
        and the exceptions of :meth:`tools`.
        """
        sansmcp.skills.check_declared(self.connected.capabilities)
        for entry in self._items(sansmcp.skills.SKILLS):
            yield sansmcp.skills.skill_of(entry, self._driver.core.target)

    def get_skill(self, uri: str) -> sansmcp.Skill:
        """Return the skill of a URI, which need not be listed, as it is now.

        Raises:
            LocalProtocolError: the server declares no skills.
            CallError, JsonRpcError: as in :meth:`call`.
        """
        sansmcp.skills.check_declared(self.connected.capabilities)
        result = self.call(*sansmcp.skills.get_request(uri))
        return sansmcp.skills.skill_in(result, self._driver.core.target)

    def read_skill(self, skill: sansmcp.Skill, path: str | None = None) -> str | bytes:
        """Read a file of a skill, and verify that it is what the entry says.

        Digest and size are verified, and of ``SKILL.md`` the frontmatter, which needs the extra
        ``skills``. Nothing is kept: what is read again is verified again. Ask a person before a
        model gets it, say which server it is from, and do nothing that its frontmatter asks for
        without asking, too.

        Args:
            skill: the entry, of :meth:`skills` or :meth:`get_skill` of a client of this server.
            path: the path of the file in the folder of the skill, as its URI has it; None for its
                ``SKILL.md``.

        Returns:
            The text, or the bytes of what is no text.

        Raises:
            SkillMismatch: the file is not what the entry says, or is not listed in it.
            LocalProtocolError: the skill is of another server.
            ModuleNotFoundError: the extra is not installed.
            CallError, JsonRpcError: as in :meth:`call`.
        """
        from .._frontmatter import parse_frontmatter

        uri = sansmcp.skills.file_uri(skill, path, self._driver.core.target)
        return sansmcp.skills.verified(skill, uri, self.read_resource(uri), parse_frontmatter)

    def _items(self, listing: typed_results.Listing) -> Iterator[Any]:
        pages = typed_results.Pages(listing)
        while not pages.is_done:
            yield from pages.items(self.call(pages.method, pages.params))

    def start_task(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> TaskHandle:
        """Call a tool, and return a handle as soon as the server has made a task of the call.

        The server alone decides whether it does; otherwise the handle holds the result. If the
        handle has an id, the call outlives this client: store that, and get the handle again with
        :meth:`task`. :meth:`call_tool` follows tasks as well, but cancels them with its caller. The
        arguments and exceptions are those of :meth:`call_tool`.
        """
        call = tool_call(name, arguments)
        result = self._driver.call(*call, on_progress, settings, detach=True)
        return TaskHandle(self._driver, task_id_of(result), result)

    def task(self, task_id: str) -> TaskHandle:
        """Return the handle of a task that was started before, by this client or another one.

        Nothing is sent. An id is valid at the server that made it, for the same user.

        Raises:
            LocalProtocolError: ``task_id`` is not a string, such as the None of a handle that holds
                its result.
        """
        check_type(str, task_id=task_id)
        return TaskHandle(self._driver, task_id)

    def notify(
        self, method: str, params: Params | None = None, *, meta: Mapping[str, Any] | None = None
    ) -> None:
        """Send a notification. The event MessageUndelivered reports that it did not arrive.

        Args:
            method, params: the JSON-RPC notification.
            meta: further members of ``_meta``.

        Raises:
            LocalProtocolError: the notification cannot be sent; see :meth:`sansmcp.Client.notify`.
        """
        self._driver.notify(method, params, meta)

    def complete_login(self, url: str) -> bool:
        """Continue a login that the event AuthorizationNeeded asked for.

        Args:
            url: where the authorization server has sent the browser.

        Returns:
            False if the URL does not belong to the login; it is ignored then.
        """
        return self._driver.complete_login(url)

    def close(self) -> None:
        """End the session. Calls in flight fail with RequestCancelled. May be called twice.

        Returns after ``close_timeout`` seconds at the latest, whatever the server does.
        """
        self._driver.close()


class ConcurrentClient(BlockingClient):
    """A blocking client that can have several requests in flight at once."""

    def __init__(self, driver: ConcurrentClientDriver) -> None:
        super().__init__(driver)
        self._calls = driver

    def start_call(
        self,
        method: str,
        params: Params | None = None,
        *,
        on_progress: OnProgress[None] | None = None,
        **settings: Unpack[sansmcp.CallSettings],
    ) -> PendingCall:
        """Send a request, and return without waiting for its result.

        Several calls can be in flight at once. All of them go on while any method waits. The
        arguments are those of :meth:`call`.
        """
        return self._calls.start_call(method, params, on_progress, settings)

    def events(self, timeout: float | None = None) -> Iterator[ClientEvent]:
        """Iterate over events that belong to no call: notifications, reconnections, a lost session.

        Events are queued from the first call of this method on. If ``limits.max_queued_events`` of
        them are queued, the client stops reading from the server until some are consumed, and calls
        may time out meanwhile.

        Args:
            timeout: seconds to wait for each event before the iterator ends; 0 to get only the
                events that are queued already; None to wait until the client is closed.
        """
        return self._calls.events(timeout)
