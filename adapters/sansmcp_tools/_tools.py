"""Tools, resources and prompts made from functions, as the handlers of an App."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import attrs

from sansmcp import App, BaseCall, JsonRpcError, LocalProtocolError, Request, ServerCall
from sansmcp.app import MirroredHeaders, TaskRule, check_task_rule
from sansmcp.codecs.json import as_object
from sansmcp.codecs.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from sansmcp.errors import check_type, with_known_settings
from sansmcp.messages import Params
from sansmcp.scopes import checked_scopes
from sansmcp.skills import EXTENSION, GET, LIST, READ_DIRECTORY
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
from ._errors import NotJsonError, ToolError
from ._function import Function, inspect_function
from ._log_levels import LogLevels
from ._pages import page_of
from ._revisions import features_of
from ._running import run
from ._schemas import check_json, to_json
from ._templates import Template, parse_template

if TYPE_CHECKING:
    from ._skills import NumberedEntry, SkillTable

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


class Tools(App):
    """An App with tools, resources and prompts made from functions.

    Args:
        name, version, instructions, title, description, icons, website_url: those of
            :class:`sansmcp.App`.
        page_size: the most entries of one page of a list.
        json_texts: True to take arguments of tools as language models send them: ``"5"``,
            ``"true"`` and ``'["a"]'`` are read as JSON where the schema of a parameter allows no
            text. False to refuse them.

    Raises:
        LocalProtocolError: an argument is of another type, or ``page_size`` is below 1.
    """

    @with_known_settings("Tools", "Tools")
    def __init__(
        self,
        name: str,
        version: str = "0",
        instructions: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: Icons | None = None,
        website_url: str | None = None,
        page_size: int = 100,
        json_texts: bool = True,
    ) -> None:
        check_type(int, page_size=page_size)
        check_type(bool, json_texts=json_texts)
        if page_size < 1:
            raise LocalProtocolError(f"page_size must be 1 or more, and is {page_size}")
        self._capabilities: dict[str, Any] = {}
        super().__init__(
            name,
            version,
            instructions,
            self._capabilities,
            self._input_schema,
            title=title,
            description=description,
            icons=icons,
            website_url=website_url,
        )
        self._page_size = page_size
        self._json_texts = json_texts
        self._numbers = count()
        self._tools: dict[str, Tool] = {}
        self._mirrored: dict[str, tuple[Tool, MirroredHeaders]] = {}
        """The headers that repeat arguments of a tool, once it was called with headers."""
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, Resource] = {}
        self._prompts: dict[str, Prompt] = {}
        self._levels = LogLevels()
        self._skills: SkillTable | None = None
        self._skills_ttl = 0
        self._publishers: list[Callable[[str, Params | None], object]] = []

    @property
    def app(self) -> App:
        """The tools themselves, since they are an App."""
        return self

    def async_functions(self) -> list[str]:
        """Return what :meth:`sansmcp.App.async_functions` does, and the async functions here."""
        tables: tuple[tuple[str, Mapping[str, Tool | Resource | Prompt]], ...] = (
            ("tool", self._tools),
            ("resource", {**self._resources, **self._templates}),
            ("prompt", self._prompts),
        )
        return [
            *super().async_functions(),
            *(
                f"the {kind} {name!r}"
                for kind, entries in tables
                for name, entry in entries.items()
                if entry.function.is_async
            ),
        ]

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
        restartable: bool = False,
        scopes: Collection[str] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> Callable[[_F], _F]: ...

    @with_known_settings("tool", "a tool")
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
        restartable: bool = False,
        scopes: Collection[str] = (),
        meta: Mapping[str, Any] | None = None,
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
            restartable: what follows the last ``context.save_progress()`` of a task may run twice,
                because another instance calls the function again if this one dies; see there.
            scopes: the scopes that a call needs; see there.
            meta: members for ``_meta`` of the tool, such as ``{"ui": {"resourceUri": ...}}``.

        Raises:
            LocalProtocolError: there is a tool of this name, or the name, a parameter, an
                annotation, ``task``, ``restartable`` or a scope cannot be used.
        """
        hints = {
            "readOnlyHint": read_only,
            "destructiveHint": destructive,
            "idempotentHint": idempotent,
            "openWorldHint": open_world,
        }
        check_task_rule(task)
        check_type(bool, restartable=restartable)
        needed = checked_scopes(scopes)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            found = inspect_function(function, name, json_texts=self._json_texts)
            if not _TOOL_NAME.fullmatch(found.name):
                raise LocalProtocolError(
                    f"{found.name!r} cannot be the name of a tool: take 1 to 128 letters, digits, "
                    "'_', '-' and '.'"
                )
            output = output_of(found)
            more = {"title": title, "description": description, "icons": icons, "_meta": meta}
            tool = Tool(
                number=next(self._numbers),
                function=found,
                definition=tool_definition(found, output, hints, **more),
                output=output,
                task=task,
                is_restartable=restartable,
                scopes=needed,
            )
            self._add(self._tools, found.name, tool, "tools", self._serve_tools)
            options = self.options["tools/call"]
            if task is not None:
                options = attrs.evolve(options, task=self._task_rule)
            if restartable:
                options = attrs.evolve(options, restartable=self._is_restartable)
            if needed:
                options = attrs.evolve(options, scopes=self._scopes_of)
            self.options["tools/call"] = options
            return function

        return register if function is None else register(function)

    @with_known_settings("resource", "a resource")
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
        meta: Mapping[str, Any] | None = None,
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
            meta: members for ``_meta`` of the resource, and of contents that have none of their
                own, such as ``{"ui": {"csp": ...}}``.

        Raises:
            LocalProtocolError: there is a resource of this URI, the template is not supported, or
                its variables are not the parameters of the function.
        """
        if callable(cast(object, uri)):
            raise LocalProtocolError('Name the URI: @tools.resource("note://one")')
        check_type(str, uri=uri)
        template = parse_template(uri)
        more: dict[str, Any] = {"title": title, "description": description, "icons": icons}

        def register(function: _F) -> _F:
            self._register_resource(
                function, template, name, mime_type, complete=complete, _meta=meta, **more
            )
            return function

        return register

    @with_known_settings("skills", "a folder of skills")
    def skills(
        self, folder: str | os.PathLike[str], *, prefix: str = "", max_age: float = 0
    ) -> None:
        """Serve the skills of a folder: it is one itself, or has some at any depth.

        A skill is a folder with a ``SKILL.md``, whose frontmatter has the name of the folder and a
        description. Clients get the frontmatter, and digest and size of each file, and read the
        files as resources: ``skill://`` and the path. Links and names that begin with a dot are
        left out. The files are looked at again at requests, at most once a second, so clients see
        what is there; see :meth:`refresh_skills` for telling them. A skill that can no longer be
        served is left out, and the log says why. Needs the extra ``skills``.

        Args:
            folder: the folder.
            prefix: what comes before the path of each skill in its URI, such as ``acme/billing``.
                What a URI cannot have, such as a space, is percent-encoded, as in names of files.
            max_age: seconds for which clients of 2026-07-28 may keep lists and entries of all
                skills; the last call counts.

        Raises:
            LocalProtocolError: the folder has no skill; one breaks the rules, has more than 512
                files or 16 MiB; or there is a skill of the same URI.
            ModuleNotFoundError: the extra is not installed.
        """
        from sansmcp_local import SkillFolder

        check_type(str, prefix=prefix)
        check_type((int, float), max_age=max_age)
        self._served_skills().add_folder(SkillFolder(folder, prefix))
        self._skills_ttl = int(max(max_age, 0) * 1000)
        self._changed("resources")

    @with_known_settings("skill", "a skill")
    def skill(
        self, path: str, *, description: str = "", frontmatter: Mapping[str, Any] | None = None
    ) -> Callable[[_F], _F]:
        """Make a skill of a function, which returns the text of ``SKILL.md`` below its frontmatter.

        Clients cannot verify it (it is ``"dynamic"``), and some do not load it. The function is
        called for each ``resources/read`` of it. Needs the extra ``skills``.

        Args:
            path: the path of the skill in its URI; the last part is its name: 1 to 64 of a-z, 0-9
                and ``-``.
            description: what it is for, and when to use it; every skill has one.
            frontmatter: further members of the frontmatter, such as ``license``, as JSON.

        Raises:
            LocalProtocolError: the path or the frontmatter cannot be used, the function has
                parameters, or there is a skill or a resource of this URI.
            ModuleNotFoundError: the extra is not installed.
        """
        if callable(path):
            raise LocalProtocolError(
                "@tools.skill needs a path and a description; write it as "
                '@tools.skill("reports/daily", description="What it is for, and when to use it")'
            )
        check_type(str, path=path, description=description)
        if not description:
            raise LocalProtocolError(
                f"skill({path!r}) has no description: say what it is for, and when to use it"
            )

        def register(function: _F) -> _F:
            members = {"description": description, **(frontmatter or {})}
            uri, before = self._served_skills().add_made(path, members)
            name = path.rpartition("/")[2]
            self._register_resource(
                function,
                parse_template(uri),
                name,
                "text/markdown",
                before,
                description=description,
            )
            return function

        return register

    def refresh_skills(self) -> None:
        """Look at the folders of skills now, and tell the clients if one has changed.

        They are told that the list of resources has changed, since skills have no notification of
        their own. :func:`run` does this every two seconds. Call it where :meth:`attach` says.
        """
        if self._skills is not None and self._skills.refresh(at_once=True):
            self._changed("resources")

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
        meta: Mapping[str, Any] | None = None,
    ) -> Callable[[_F], _F]: ...

    @with_known_settings("prompt", "a prompt")
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
        meta: Mapping[str, Any] | None = None,
    ) -> Any:
        """Make a prompt of a function: ``@tools.prompt``, or ``@tools.prompt(title=...)``.

        The function returns a text, a Message, content, or a list of these. Clients send arguments
        as strings, which are converted to the types of the parameters.

        Args:
            function: the function.
            name, title, description, icons: as for :meth:`tool`.
            complete: completers of arguments. Those of a Literal or an Enum need none.
            meta: members for ``_meta`` of the prompt.

        Raises:
            LocalProtocolError: there is a prompt of this name, or a parameter cannot be used.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            found = inspect_function(function, name, are_strings=True)
            more = {"title": title, "description": description, "icons": icons, "_meta": meta}
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
        self._mirrored.pop(name, None)

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

    def _register_resource(
        self,
        function: Callable[..., Any],
        template: Template,
        name: str | None,
        mime_type: str | None,
        before: str = "",
        complete: Mapping[str, Completer] | None = None,
        **more: Any,
    ) -> None:
        uri = template.text
        found = inspect_function(function, name, are_strings=True)
        _check_variables(found, template.path, template.query, uri)
        resource = Resource(
            number=next(self._numbers),
            function=found,
            definition=resource_definition(found, template, mime_type, **more),
            template=template,
            mime_type=mime_type,
            before=before,
            complete=_checked_completers(found, complete),
        )
        entries = self._templates if template.variables else self._resources
        self._add(entries, uri, resource, "resources", self._serve_resources)

    def _served_skills(self) -> SkillTable:
        """Return the table of skills; the first call registers the methods."""
        from ._skills import SkillTable

        if self._skills is None:
            if "resources" not in self._capabilities:
                self._serve_resources()
                self._capabilities["resources"] = {"listChanged": True}
            self._skills = table = SkillTable(self._numbers)
            self.handler(LIST)(self._list_skills)
            self.handler(GET)(self._get_skill)
            self.handler(READ_DIRECTORY)(self._read_directory)
            self._capabilities["extensions"] = {EXTENSION: {"directoryRead": True}}
            return table
        return self._skills

    def _add(
        self, entries: dict[str, _E], key: str, entry: _E, kind: str, serve: Callable[[], None]
    ) -> None:
        if key in entries:
            raise LocalProtocolError(f"{key!r} exists already in the {kind}; remove it first")
        try:
            check_json(entry.definition)  # a list with it could not be sent
        except NotJsonError as error:
            raise LocalProtocolError(f"{entry.function.name} cannot be listed: {error}") from error
        if kind not in self._capabilities:
            serve()
            self._capabilities[kind] = {"listChanged": True}
        if entry.function.context is not None and "logging/setLevel" not in self.handlers:
            self.handler("logging/setLevel", inline=True)(self._levels.set)
        can_complete = isinstance(entry, Completable) and entry.can_complete
        if can_complete and "completion/complete" not in self.handlers:
            self.handler("completion/complete", inline=self._completes_inline)(self._complete)
        entries[key] = entry
        self._changed(kind)

    def _remove(self, entries: dict[str, _E], key: str, kind: str) -> None:
        if key not in entries:
            raise LocalProtocolError(f"{key!r} is not among the {kind}")
        del entries[key]
        self._changed(kind)

    def _serve_tools(self) -> None:
        self.handler("tools/list", inline=True)(partial(self._list, "tools", self._tools))
        inline = self._runs_inline(self._tool_of)
        self.handler("tools/call", inline=inline)(self._call_tool)

    def _serve_resources(self) -> None:
        # Skills look at files, which takes a thread.
        self.handler("resources/list", inline=lambda request: self._skills is None)(
            self._list_resources
        )
        self.handler("resources/templates/list", inline=True)(
            partial(self._list, "resourceTemplates", self._templates)
        )
        runs_inline = self._runs_inline(lambda params: self._resource_of(params)[0])

        def reads_inline(request: Request) -> bool:
            is_of_folder = self._resource_of(request.params or {})[0] is None
            return runs_inline(request) and (self._skills is None or not is_of_folder)

        self.handler("resources/read", inline=reads_inline)(self._read_resource)

    def _serve_prompts(self) -> None:
        self.handler("prompts/list", inline=True)(partial(self._list, "prompts", self._prompts))
        inline = self._runs_inline(self._prompt_of)
        self.handler("prompts/get", inline=inline)(self._get_prompt)

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
        return _page(key, [entry.shown(features) for entry in page], cursor)

    def _list_resources(self, call: Call) -> dict[str, Any]:
        of_folders: tuple[NumberedEntry, ...] = ()
        if self._skills is not None:
            self._skills.refresh()
            of_folders = self._skills.of_folders()
        entries: list[Resource | NumberedEntry] = [*tuple(self._resources.values()), *of_folders]
        entries.sort(key=lambda each: each.number)
        page, cursor = page_of(entries, call.params.get("cursor"), self._page_size)
        features = features_of(call)
        return _page("resources", [entry.shown(features) for entry in page], cursor)

    # Skills

    def _list_skills(self, call: Call) -> dict[str, Any]:
        table = self._served_skills()
        table.refresh()
        page, cursor = page_of(
            table.entries(), call.params.get("cursor"), self._page_size, lambda each: each.weight
        )
        return {**_page("skills", [each.entry for each in page], cursor), **self._hint(call)}

    def _get_skill(self, call: Call) -> dict[str, Any]:
        table, uri = self._served_skills(), call.params.get("uri")
        table.refresh()
        found = table.entry(uri)
        if found is None:
            raise _unknown("skill", uri)
        return {"skill": found.entry, **self._hint(call)}

    def _hint(self, call: Call) -> dict[str, Any]:
        return {"ttlMs": self._skills_ttl} if call.peer.revision.caching else {}

    def _read_directory(self, call: Call) -> dict[str, Any]:
        table, uri = self._served_skills(), call.params.get("uri")
        table.refresh()
        children = table.children(uri)
        if children is None:
            raise _unknown("folder", uri)
        return {"resources": children}

    # Tools

    def _tool_of(self, params: Mapping[str, Any]) -> Tool | None:
        return _entry_of(self._tools, params.get("name"))

    def mirrored_headers(
        self, tool: str, search: Callable[[Mapping[str, Any]], MirroredHeaders]
    ) -> MirroredHeaders:
        """See :meth:`sansmcp.App.mirrored_headers`; the schema of a function is searched once."""
        found, known = self._tools.get(tool), self._mirrored.get(tool)
        if found is None:
            return super().mirrored_headers(tool, search)
        if known is None or known[0] is not found:
            known = self._mirrored[tool] = (found, super().mirrored_headers(tool, search))
        return known[1]

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.function.schema

    def _task_rule(self, call: ServerCall) -> TaskRule:
        tool = self._tool_of(call.request.params or {})
        return "never" if tool is None else tool.task

    def _is_restartable(self, request: Request) -> bool:
        tool = self._tool_of(request.params or {})
        return tool is not None and tool.is_restartable

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
            is_wrapped = None if output is None else output.is_wrapped
            # First, since a coroutine fits no schema, and this says that an await is missing.
            result = tool_result(value, features, is_wrapped=is_wrapped)
            if output is not None:
                output.check(value)
            return result

        def fail(error: Exception) -> dict[str, Any]:
            if isinstance(error, ToolError):
                return error_result(str(error))
            _logger.error("tool %s has failed", escape_controls(name), exc_info=error)
            if isinstance(error, NotJsonError):
                return error_result(f"The result of {name} is not JSON: {error}")
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
            contents = None
            if self._skills is not None and isinstance(uri, str):
                contents = self._skills.contents(uri)
            if contents is not None:
                return {"contents": [contents]}
            raise JsonRpcError(_NOT_FOUND, f"There is no resource {elide(uri)}", {"uri": uri})
        arguments = _converted(resource.function, values)
        uri, mime_type, before = str(call.params["uri"]), resource.mime_type, resource.before
        meta = resource.definition.get("_meta")
        return run(
            resource.function,
            call,
            arguments,
            self._levels,
            conclude=lambda value: resource_result(
                f"{before}{to_json(value)}" if before else value, uri, mime_type, meta
            ),
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
            return _completion(_beginning_with(begun, completer))
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


def _page(key: str, items: list[Any], cursor: str | None) -> dict[str, Any]:
    return {key: items} if cursor is None else {key: items, "nextCursor": cursor}


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


def _beginning_with(begun: str, values: Sequence[str]) -> list[str]:
    """Return the values that begin with a text of a client, in upper or lower case."""
    folded = [value.casefold() for value in values]
    if len(begun) > max(map(len, folded), default=0):  # folding never shortens a text
        return []
    begun = begun.casefold()
    return [value for value, each in zip(values, folded, strict=True) if each.startswith(begun)]


async def _completion_later(found: Any) -> dict[str, Any]:
    return _completion(await found)


def _completion(found: Sequence[str]) -> dict[str, Any]:
    values = list(map(str, found[:_MOST_COMPLETIONS]))
    return {
        "completion": {"values": values, "total": len(found), "hasMore": len(found) > len(values)}
    }
