"""Tools, resources and prompts made from functions, as the handlers of an App."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeVar, overload

import attrs

from sansmcp import App, BaseCall, JsonRpcError, LocalProtocolError, Request, ServerCall
from sansmcp.app import TaskRule, check_task_rule
from sansmcp.codecs.json import as_object
from sansmcp.codecs.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from sansmcp.errors import check_type
from sansmcp.messages import Params
from sansmcp.scopes import checked_scopes
from sansmcp.types import elide, escape_controls

from ._content import error_result, prompt_messages, resource_result, tool_result
from ._entries import (
    Completable,
    Completer,
    Entry,
    Icons,
    Prompt,
    Resource,
    Tool,
    is_plain_completer,
    output_of,
    prompt_definition,
    resource_definition,
    tool_definition,
)
from ._errors import ToolError
from ._function import Function, inspect_function
from ._log_levels import LogLevels
from ._pages import page_of
from ._revisions import features_of
from ._running import run
from ._templates import parse_template

_F = TypeVar("_F", bound=Callable[..., Any])
_E = TypeVar("_E", bound=Entry)
Call = BaseCall[Any, Any]

_logger = logging.getLogger("sansmcp")

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_NOT_FOUND = -32002
"""Resource not found; the core sends its successor at 2026-07-28."""
_MOST_COMPLETIONS = 100
"""Source: every revision, server/utilities/completion."""
_FAILED = "The tool has failed. The log of the server has the reason"


class Tools:
    """Tools, resources and prompts made from functions, and the App that serves them.

    Args:
        name, version, instructions: those of :class:`sansmcp.App`.
        page_size: the most entries of one page of a list.

    Attributes:
        app: the App, for any adapter, or for further handlers.

    Raises:
        LocalProtocolError: an argument is of another type, or ``page_size`` is below 1.
    """

    def __init__(
        self,
        name: str,
        version: str = "0",
        instructions: str | None = None,
        *,
        page_size: int = 100,
    ) -> None:
        check_type(int, page_size=page_size)
        if page_size < 1:
            raise LocalProtocolError(f"page_size must be 1 or more, and is {page_size}")
        self._capabilities: dict[str, Any] = {}
        self.app = App(name, version, instructions, self._capabilities, self._input_schema)
        self._page_size = page_size
        self._numbers = count()
        self._tools: dict[str, Tool] = {}
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, Resource] = {}
        self._prompts: dict[str, Prompt] = {}
        self._levels = LogLevels()
        self._publishers: list[Callable[[str, Params | None], object]] = []

    @overload
    def tool(self, function: _F, /) -> _F: ...

    @overload
    def tool(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Icons | None = None,
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        task: TaskRule = None,
        scopes: Collection[str] = (),
    ) -> Callable[[_F], _F]: ...

    def tool(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Icons | None = None,
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        task: TaskRule = None,
        scopes: Collection[str] = (),
    ) -> Any:
        """Make a tool of a function: ``@tools.tool``, or ``@tools.tool(title=...)``.

        The function is returned unchanged. An async function runs in the event loop, a plain one in
        a thread. Clients are told of a tool that is added while the server runs (:meth:`attach`).

        Args:
            function: the function. Its annotations are the schema of the arguments, its docstring
                describes the tool and its parameters.
            name: the name of the tool; None is that of the function.
            title: a name for people.
            description: instead of that of the docstring.
            icons: icons, as JSON.
            read_only: True if the tool changes nothing (``readOnlyHint``).
            destructive: False if it only adds (``destructiveHint``).
            idempotent: True if a repetition changes nothing more (``idempotentHint``).
            open_world: False if it stays within the server's own data (``openWorldHint``).
            task: when a call becomes a task; see :meth:`sansmcp.App.handler`.
            scopes: the scopes that a call needs; see there.

        Raises:
            LocalProtocolError: there is a tool of this name, or the name, a parameter, an
                annotation, ``task`` or a scope cannot be used.
        """
        hints = {
            "readOnlyHint": read_only,
            "destructiveHint": destructive,
            "idempotentHint": idempotent,
            "openWorldHint": open_world,
        }
        check_task_rule(task)
        needed = checked_scopes(scopes)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            found = inspect_function(function, name)
            if not _TOOL_NAME.fullmatch(found.name):
                raise LocalProtocolError(
                    f"{found.name!r} cannot be the name of a tool: take 1 to 128 letters, digits, "
                    "'_', '-' and '.'"
                )
            output = output_of(found)
            more = {"title": title, "description": description, "icons": icons}
            tool = Tool(
                number=next(self._numbers),
                function=found,
                definition=tool_definition(found, output, hints, **more),
                output=output,
                task=task,
                scopes=needed,
            )
            self._add(self._tools, found.name, tool, "tools", self._serve_tools)
            if task is not None:
                options = self.app.options["tools/call"]
                self.app.options["tools/call"] = attrs.evolve(options, task=self._task_rule)
            return function

        return register if function is None else register(function)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: Icons | None = None,
        complete: Mapping[str, Completer] | None = None,
    ) -> Callable[[_F], _F]:
        """Make a resource of a function, or, if the URI has variables, a template of resources.

        The function returns a text, bytes, an EmbeddedResource or a list of these. Another value
        becomes JSON. The values of variables come from the client: check them.

        Args:
            uri: a URI, or a template: ``{name}`` is a part without slashes, ``{+name}`` one with
                them, and ``{?a,b}`` at the end are parts that can be left out. Each variable is a
                parameter of the function.
            name: the name of the resource; None is that of the function.
            title, description, icons: as for :meth:`tool`.
            mime_type: the media type of the contents; None follows from what is returned.
            complete: completers of variables.

        Raises:
            LocalProtocolError: there is a resource of this URI, the template is not supported, or
                its variables are not the parameters of the function.
        """
        check_type(str, uri=uri)
        template = parse_template(uri)

        def register(function: _F) -> _F:
            found = inspect_function(function, name, are_strings=True)
            _check_variables(found, template.path, template.query, uri)
            more = {"title": title, "description": description, "icons": icons}
            resource = Resource(
                number=next(self._numbers),
                function=found,
                definition=resource_definition(found, template, mime_type, **more),
                template=template,
                mime_type=mime_type,
                complete=_checked_completers(found, complete),
            )
            entries = self._templates if template.variables else self._resources
            self._add(entries, uri, resource, "resources", self._serve_resources)
            return function

        return register

    @overload
    def prompt(self, function: _F, /) -> _F: ...

    @overload
    def prompt(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Icons | None = None,
        complete: Mapping[str, Completer] | None = None,
    ) -> Callable[[_F], _F]: ...

    def prompt(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Icons | None = None,
        complete: Mapping[str, Completer] | None = None,
    ) -> Any:
        """Make a prompt of a function: ``@tools.prompt``, or ``@tools.prompt(title=...)``.

        The function returns a text, a Message, content, or a list of these. Clients send arguments
        as strings, which are converted to the types of the parameters.

        Args:
            function: the function.
            name, title, description, icons: as for :meth:`tool`.
            complete: completers of arguments. Those of a Literal or an Enum need none.

        Raises:
            LocalProtocolError: there is a prompt of this name, or a parameter cannot be used.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            found = inspect_function(function, name, are_strings=True)
            more = {"title": title, "description": description, "icons": icons}
            prompt = Prompt(
                number=next(self._numbers),
                function=found,
                definition=prompt_definition(found, **more),
                complete=_checked_completers(found, complete),
            )
            self._add(self._prompts, found.name, prompt, "prompts", self._serve_prompts)
            return function

        return register if function is None else register(function)

    def remove_tool(self, name: str) -> None:
        """Remove a tool, and tell the clients. Calls that run go on.

        Raises:
            LocalProtocolError: there is no such tool.
        """
        self._remove(self._tools, name, "tools")

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template, and tell the clients.

        Raises:
            LocalProtocolError: there is no resource or template of this URI.
        """
        entries = self._templates if uri in self._templates else self._resources
        self._remove(entries, uri, "resources")

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt, and tell the clients.

        Raises:
            LocalProtocolError: there is no such prompt.
        """
        self._remove(self._prompts, name, "prompts")

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that have subscribed to a resource that its contents have changed."""
        self._publish("notifications/resources/updated", {"uri": uri})

    def attach(self, publish: Callable[[str, Params | None], object]) -> Callable[[], None]:
        """Tell the clients of a server of changes: of added and removed entries, and of resources.

        :func:`run` does this itself. With an adapter, pass the server's own method:
        ``tools.attach(serving.publish)``. It is called where the change is made, so make changes in
        the event loop of the server.

        Returns:
            A function that ends this.
        """
        self._publishers.append(publish)
        return lambda: self._publishers.remove(publish)

    # Registration

    def _add(
        self, entries: dict[str, _E], key: str, entry: _E, kind: str, serve: Callable[[], None]
    ) -> None:
        if key in entries:
            raise LocalProtocolError(f"{key!r} exists already in the {kind}; remove it first")
        if kind not in self._capabilities:
            serve()
            self._capabilities[kind] = {"listChanged": True}
        if entry.function.context is not None and "logging/setLevel" not in self.app.handlers:
            self.app.handler("logging/setLevel", inline=True)(self._levels.set)
        can_complete = isinstance(entry, Completable) and entry.can_complete
        if can_complete and "completion/complete" not in self.app.handlers:
            self.app.handler("completion/complete", inline=self._completes_inline)(self._complete)
        entries[key] = entry
        self._changed(kind)

    def _remove(self, entries: dict[str, _E], key: str, kind: str) -> None:
        if key not in entries:
            raise LocalProtocolError(f"{key!r} is not among the {kind}")
        del entries[key]
        self._changed(kind)

    def _serve_tools(self) -> None:
        self.app.handler("tools/list", inline=True)(partial(self._list, "tools", self._tools))
        handle = self.app.handler(
            "tools/call", inline=self._runs_inline(self._tool_of), scopes=self._scopes_of
        )
        handle(self._call_tool)

    def _serve_resources(self) -> None:
        self.app.handler("resources/list", inline=True)(
            partial(self._list, "resources", self._resources)
        )
        self.app.handler("resources/templates/list", inline=True)(
            partial(self._list, "resourceTemplates", self._templates)
        )
        inline = self._runs_inline(lambda params: self._resource_of(params)[0])
        self.app.handler("resources/read", inline=inline)(self._read_resource)

    def _serve_prompts(self) -> None:
        self.app.handler("prompts/list", inline=True)(partial(self._list, "prompts", self._prompts))
        inline = self._runs_inline(self._prompt_of)
        self.app.handler("prompts/get", inline=inline)(self._get_prompt)

    def _runs_inline(
        self, find: Callable[[Mapping[str, Any]], Entry | None]
    ) -> Callable[[Request], bool]:
        """Return the rule that only plain functions run in threads."""

        def runs_inline(request: Request) -> bool:
            entry = find(request.params or {})
            return entry is None or entry.function.is_async

        return runs_inline

    # Changes

    def _changed(self, kind: str) -> None:
        self._publish(f"notifications/{kind}/list_changed", None)

    def _publish(self, method: str, params: Params | None) -> None:
        for publish in tuple(self._publishers):
            publish(method, params)

    # Lists

    def _list(self, key: str, entries: Mapping[str, Entry], call: Call) -> dict[str, Any]:
        # A copy, since a function in a thread may add an entry meanwhile.
        page, cursor = page_of(tuple(entries.values()), call.params.get("cursor"), self._page_size)
        features = features_of(call)
        result: dict[str, Any] = {key: [entry.shown(features) for entry in page]}
        return result if cursor is None else {**result, "nextCursor": cursor}

    # Tools

    def _tool_of(self, params: Mapping[str, Any]) -> Tool | None:
        return _entry_of(self._tools, params.get("name"))

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.function.schema

    def _task_rule(self, call: ServerCall) -> TaskRule:
        tool = self._tool_of(call.request.params or {})
        return "never" if tool is None else tool.task

    def _scopes_of(self, request: Request) -> Collection[str]:
        tool = self._tool_of(request.params or {})
        return () if tool is None else tool.scopes

    def _call_tool(self, call: Call) -> Any:
        tool = self._tool_of(call.params)
        if tool is None:
            raise _unknown("tool", call.params.get("name"))
        name, output, features = tool.function.name, tool.output, features_of(call)
        try:
            arguments = tool.function.arguments(_object(call, "arguments"))
        except ValueError as error:
            return error_result(f"The arguments of {name} are not valid: {error}")

        def conclude(value: Any) -> dict[str, Any]:
            if output is not None:
                output.check(value)
            is_wrapped = None if output is None else output.is_wrapped
            return tool_result(value, features, is_wrapped=is_wrapped)

        def fail(error: Exception) -> dict[str, Any]:
            if isinstance(error, ToolError):
                return error_result(str(error))
            _logger.error("tool %s has failed", escape_controls(name), exc_info=error)
            return error_result(_FAILED)

        return run(tool.function, call, arguments, self._levels, conclude=conclude, fail=fail)

    # Resources

    def _resource_of(self, params: Mapping[str, Any]) -> tuple[Resource | None, dict[str, str]]:
        """Return the resource of a URI, and the values of the variables of its template."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            return None, {}
        if uri in self._resources:
            return self._resources[uri], {}
        for resource in tuple(self._templates.values()):
            values = resource.template.match(uri)
            if values is not None:
                return resource, values
        return None, {}

    def _read_resource(self, call: Call) -> Any:
        resource, values = self._resource_of(call.params)
        if resource is None:
            uri = call.params.get("uri")
            raise JsonRpcError(_NOT_FOUND, f"There is no resource {elide(uri)}", {"uri": uri})
        arguments = _converted(resource.function, values)
        uri, mime_type = str(call.params["uri"]), resource.mime_type
        return run(
            resource.function,
            call,
            arguments,
            self._levels,
            conclude=lambda value: resource_result(value, uri, mime_type),
            fail=_protocol_error,
        )

    # Prompts

    def _prompt_of(self, params: Mapping[str, Any]) -> Prompt | None:
        return _entry_of(self._prompts, params.get("name"))

    def _get_prompt(self, call: Call) -> Any:
        prompt = self._prompt_of(call.params)
        if prompt is None:
            raise _unknown("prompt", call.params.get("name"))
        arguments, features = (
            _converted(prompt.function, _object(call, "arguments")),
            features_of(call),
        )
        text = prompt.definition.get("description")
        described = {} if text is None else {"description": text}
        return run(
            prompt.function,
            call,
            arguments,
            self._levels,
            conclude=lambda value: {**described, "messages": prompt_messages(value, features)},
            fail=_protocol_error,
        )

    # Completion

    def _completer_of(self, params: Mapping[str, Any]) -> Completer | None:
        """Return the completer that a request is for; None for an unknown prompt or template."""
        reference, argument = as_object(params.get("ref")) or {}, as_object(params.get("argument"))
        entry: Completable | None
        if reference.get("type") == "ref/prompt":
            entry = _entry_of(self._prompts, reference.get("name"))
        else:
            entry = _entry_of(self._templates, reference.get("uri"))
        return None if entry is None else entry.completer_of(str((argument or {}).get("name")))

    def _completes_inline(self, request: Request) -> bool:
        completer = self._completer_of(request.params or {})
        return completer is None or not is_plain_completer(completer)

    def _complete(self, call: Call) -> Any:
        completer = self._completer_of(call.params)
        if completer is None:
            raise _unknown("prompt or template", call.params.get("ref"))
        begun = str(_object(call, "argument").get("value", ""))
        if not callable(completer):
            return _completion([each for each in completer if _begins(each, begun)])
        known = as_object(_object(call, "context").get("arguments")) or {}
        found = completer(begun, known)
        return _completion(found) if isinstance(found, Sequence) else _completion_later(found)


def _check_variables(
    function: Function, path: Sequence[str], query: Sequence[str], uri: str
) -> None:
    """Raise LocalProtocolError unless the variables of a template are a function's parameters."""
    parameters, required = set(function.parameters), set(function.required)
    if parameters != {*path, *query} or not required <= set(path):
        raise LocalProtocolError(
            f"The variables of {uri!r} must be the parameters of {function.name}, and those after "
            f"'?' need defaults; the parameters are {', '.join(sorted(parameters)) or 'none'}"
        )


def _checked_completers(
    function: Function, complete: Mapping[str, Completer] | None
) -> Mapping[str, Completer]:
    unknown = sorted(set(complete or {}) - set(function.parameters))
    if unknown:
        raise LocalProtocolError(f"{function.name} has no parameter {', '.join(unknown)}")
    return dict(complete or {})


def _entry_of(entries: Mapping[str, _E], key: Any) -> _E | None:
    return entries.get(key) if isinstance(key, str) else None


def _object(call: Call, name: str) -> dict[str, Any]:
    """Return a parameter that is an object, null or absent. Raises JsonRpcError."""
    value = call.params.get(name)
    found = {} if value is None else as_object(value)
    if found is None:
        raise JsonRpcError(INVALID_PARAMS, f"{name} must be an object, got {elide(value)}")
    return found


def _converted(function: Function, given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return function.arguments(given)
    except ValueError as error:
        raise JsonRpcError(
            INVALID_PARAMS, f"The arguments of {function.name} are not valid: {error}"
        ) from error


def _unknown(what: str, name: Any) -> JsonRpcError:
    return JsonRpcError(INVALID_PARAMS, f"There is no {what} {elide(name)}")


def _protocol_error(error: Exception) -> Any:
    """Raise the error for what a resource or a prompt has raised."""
    if isinstance(error, ToolError):
        raise JsonRpcError(INTERNAL_ERROR, str(error)) from error
    raise error


def _begins(value: str, begun: str) -> bool:
    return value.casefold().startswith(begun.casefold())


async def _completion_later(found: Any) -> dict[str, Any]:
    return _completion(await found)


def _completion(found: Sequence[str]) -> dict[str, Any]:
    values = list(map(str, found[:_MOST_COMPLETIONS]))
    return {
        "completion": {"values": values, "total": len(found), "hasMore": len(found) > len(values)}
    }
