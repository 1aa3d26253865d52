"""The context of a call: progress, log messages, and questions to the user, the model, the client.

At the handshake revisions a question is a server request, and the function waits for the answer. At
2026-07-28 the server cannot ask while a request is open: the question is the result, and the client
repeats its request with the answer. The function is then called again from its beginning, and each
question that was answered before returns at once. So the questions must come in the same order,
which is checked: the answers travel with a digest of their questions.

A function that saves its progress is called again with what it has saved, which stands for all that
came before: the questions of that time are forgotten.

Source: 2026-07-28 basic/utilities: multi round-trip requests; docs/tools.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast, overload

import msgspec

from sansmcp import BaseCall, InputRequest, InputRequired, LocalProtocolError
from sansmcp.server.input_checks import missing_capabilities

from ._content import Message, sampling_messages
from ._forms import Elicited, Form
from ._log_levels import LogLevels

T = TypeVar("T")

Level: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""The levels of log messages, the least severe first."""

_ELICIT = "elicitation/create"
_SAMPLE = "sampling/createMessage"
_ROOTS = "roots/list"


class NeedsInput(BaseException):
    """Leaves a function whose questions are the result of the call.

    No Exception, so that ``except Exception`` in the function lets it pass.
    """

    def __init__(self, questions: Questions) -> None:
        super().__init__("the questions are the result of the call")
        self.questions = questions


class Questions:
    """The questions of one run of a function, in order, and the answers from before."""

    def __init__(self, call: BaseCall[Any, Any]) -> None:
        self._call = call
        self._next = 0
        state, asked = None, call.saved_state or ()
        # Calls that have saved no progress keep the questions alone, as earlier versions did.
        if isinstance(asked, dict):
            kept = cast("dict[str, Any]", asked)
            state, asked = kept["saved"], kept["asked"]
        self.saved: Any = state
        self._known: list[list[Any]] = [list(known) for known in asked]
        """A digest of each question that was asked, and the answer if there is one."""
        self._open: dict[str, InputRequest] = {}
        """The questions of this run without an answer: several if tasks of the function ask."""
        for number, known in enumerate(self._known):
            answer = call.input_responses.get(str(number))
            if len(known) == 1 and answer is not None:
                known.append(answer)

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Return the answer to the next question; None: ask it now, and wait.

        Raises:
            NeedsInput: the question must be the result of the call.
            LocalProtocolError: the function has asked something else before.
        """
        number, self._next = self._next, self._next + 1
        request = InputRequest(method, params)
        peer = self._call.peer
        if peer.revision.server_requests:
            required = InputRequired({str(number): request})
            if not missing_capabilities(required, peer.client_capabilities):
                return None
            # The server refuses what the client cannot be asked, in the same way for all revisions.
        question = msgspec.json.encode([method, params], order="deterministic")
        digest = hashlib.sha256(question).hexdigest()[:16]
        if number == len(self._known):
            self._known.append([digest])
        before, *answers = self._known[number]
        if before != digest:
            raise LocalProtocolError(
                f"Question {number + 1} of this call is not the one that was asked before "
                f"({method}). At 2026-07-28 the function is called again for each answer, and must "
                "ask the same questions in the same order; what differs must come from its "
                "arguments or from earlier answers"
            )
        if not answers:
            self._open[str(number)] = request
            raise NeedsInput(self)
        return answers[0]

    def save(self, state: Any) -> Any:
        """Save what stands for all that came before, and return what the call's method returns.

        Raises:
            LocalProtocolError: the tool is not restartable, the state is not JSON, or a question
                is open, with which the function has been left.
        """
        if self._open:
            raise LocalProtocolError(
                "The call ends with a question of another task of this function, and is called "
                "again with the answer: save before asking, or after all answers are there"
            )
        later = self._known[self._next :]
        done = self._call.save_progress({"saved": state, "asked": later})
        self.saved, self._known, self._next = state, later, 0
        return done

    @property
    def required(self) -> InputRequired:
        """The open questions, as the result of the call."""
        if self.saved is None:
            return InputRequired(self._open, self._known)
        return InputRequired(self._open, {"saved": self.saved, "asked": self._known})


class _AnyContext:
    """The common part of the contexts of async and plain functions."""

    def __init__(self, call: BaseCall[Any, Any], questions: Questions, levels: LogLevels) -> None:
        self._call = call
        self._questions = questions
        self._levels = levels

    @property
    def call(self) -> BaseCall[Any, Any]:
        """The call, for what the context has no method: headers, principal, disconnect()."""
        return self._call

    @property
    def saved_state(self) -> Any:
        """What this call has saved last with ``save_progress()``; None if it has saved nothing."""
        return self._questions.saved


class Context(_AnyContext):
    """The context of an async function: annotate a parameter with this class to get it."""

    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress to a client that has asked for it.

        Args:
            progress: the progress so far; it must increase with every report.
            total: the value of ``progress`` at the end; None if it is not known.
            message: a text for the user; None for none.
        """
        await self._call.progress(progress, total, message)

    async def save_progress(self, state: Any) -> None:
        """Save a state of a task, and wait until the store has it.

        What follows may run twice: if this instance dies, another one calls the function again from
        its beginning, with that state as :attr:`saved_state`. It stands for all that came before,
        questions and their answers included. Nothing is stored before the call is a task.

        Args:
            state: any JSON value but None.

        Raises:
            LocalProtocolError: the tool was registered without ``restartable=True``, or ``state``
                is not JSON.
        """
        await self._questions.save(state)

    async def log(self, level: Level, data: Any, logger: str | None = None) -> None:
        """Send a log message to a client that wants messages of this level.

        Args:
            level: how severe it is.
            data: a text, or any JSON value.
            logger: the name of the part of the server that logs; None for none.
        """
        method, params = _log_message(level, data, logger)
        if self._levels.includes(self._call, level):
            await self._call.notify(method, params)

    @overload
    async def elicit(
        self, type: type[T], message: str | None = None, *, timeout: float = 300.0
    ) -> Elicited[T]: ...

    @overload
    async def elicit(
        self, type: Any, message: str | None = None, *, timeout: float = 300.0
    ) -> Elicited[Any]: ...

    async def elicit(
        self, type: Any, message: str | None = None, *, timeout: float = 300.0
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        **At 2026-07-28 the function is called again with the answer, so the code before this line
        runs once more for each question.** Ask before you change anything.

        Args:
            type: a struct, dataclass, TypedDict, attrs class or pydantic model with simple fields,
                or a simple type such as ``int`` or ``Literal["a", "b"]``.
            message: the question; None takes the docstring of a type with fields, or its name.
            timeout: seconds to wait for the answer, at the handshake revisions.

        Raises:
            LocalProtocolError: the type makes no form, or the question is not the one that the
                function asked before.
            ToolError: the answer does not fit the type.
            RequestTimeout: no answer came in time.
        """
        form = Form(type, message)
        return form.read(await self._ask(_ELICIT, form.params, timeout))

    async def sample(
        self,
        messages: str | Message | Sequence[str | Message],
        *,
        max_tokens: int = 1000,
        system_prompt: str | None = None,
        timeout: float = 300.0,
    ) -> Any:
        """Ask the model of the client. Returns its message: JSON with ``role`` and ``content``.

        The function is called again at 2026-07-28, as for :meth:`elicit`, which also has the
        exceptions.

        Args:
            messages: one or more; a text is a message of the user.
            max_tokens: the most that the model may write.
            system_prompt: a system prompt; None for none.
            timeout: seconds to wait for the answer, at the handshake revisions.
        """
        params = _sampling(messages, max_tokens, system_prompt)
        return await self._ask(_SAMPLE, params, timeout)

    async def roots(self, *, timeout: float = 300.0) -> list[Any]:
        """Ask the client for its roots: JSON objects with ``uri``, and perhaps ``name``.

        The function is called again at 2026-07-28, as for :meth:`elicit`.
        """
        return _roots(await self._ask(_ROOTS, {}, timeout))

    async def _ask(self, method: str, params: dict[str, Any], timeout: float) -> Any:
        answer = self._questions.answer(method, params)
        if answer is None:
            answer = await self._call.ask(method, params, timeout=timeout)
        return answer


class ThreadContext(_AnyContext):
    """The context of a plain function, which runs in a thread: its methods block.

    They are those of :class:`Context`. If the client cancels the call they raise RequestCancelled.
    """

    def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report progress; see :meth:`Context.progress`."""
        self._call.progress(progress, total, message)

    def save_progress(self, state: Any) -> None:
        """Save a state of a task; see :meth:`Context.save_progress`."""
        self._questions.save(state)

    def log(self, level: Level, data: Any, logger: str | None = None) -> None:
        """Send a log message; see :meth:`Context.log`."""
        method, params = _log_message(level, data, logger)
        if self._levels.includes(self._call, level):
            self._call.notify(method, params)

    @overload
    def elicit(
        self, type: type[T], message: str | None = None, *, timeout: float = 300.0
    ) -> Elicited[T]: ...

    @overload
    def elicit(
        self, type: Any, message: str | None = None, *, timeout: float = 300.0
    ) -> Elicited[Any]: ...

    def elicit(
        self, type: Any, message: str | None = None, *, timeout: float = 300.0
    ) -> Elicited[Any]:
        """Ask the user to fill in a form; see :meth:`Context.elicit`.

        **At 2026-07-28 the function is called again with the answer, so the code before this line
        runs once more for each question.**
        """
        form = Form(type, message)
        return form.read(self._ask(_ELICIT, form.params, timeout))

    def sample(
        self,
        messages: str | Message | Sequence[str | Message],
        *,
        max_tokens: int = 1000,
        system_prompt: str | None = None,
        timeout: float = 300.0,
    ) -> Any:
        """Ask the model of the client; see :meth:`Context.sample`."""
        return self._ask(_SAMPLE, _sampling(messages, max_tokens, system_prompt), timeout)

    def roots(self, *, timeout: float = 300.0) -> list[Any]:
        """Ask the client for its roots; see :meth:`Context.roots`."""
        return _roots(self._ask(_ROOTS, {}, timeout))

    def _ask(self, method: str, params: dict[str, Any], timeout: float) -> Any:
        answer = self._questions.answer(method, params)
        if answer is None:
            answer = self._call.ask(method, params, timeout=timeout)
        return answer


def _log_message(level: Level, data: Any, logger: str | None) -> tuple[str, dict[str, Any]]:
    params = {"level": level, "data": data}
    return "notifications/message", params if logger is None else {**params, "logger": logger}


def _sampling(
    messages: str | Message | Sequence[str | Message], max_tokens: int, system_prompt: str | None
) -> dict[str, Any]:
    params = {"messages": sampling_messages(messages), "maxTokens": max_tokens}
    return params if system_prompt is None else {**params, "systemPrompt": system_prompt}


def _roots(response: Any) -> list[Any]:
    return list(response.get("roots", ()))
