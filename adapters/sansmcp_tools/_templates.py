"""URI templates: which URIs they match, and the values of their variables.

Of RFC 6570 these are the expressions ``{name}``, ``{+name}`` and, at the end, ``{?a,b}``.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import attrs

from sansmcp import LocalProtocolError

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_DELIMITERS = re.compile("[/?#]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*[:{]|\{")
"""The beginning of an absolute URI (RFC 3986, 3.1), or of a template that may make one."""
_NAMES = r"[A-Za-z_]\w*(?:,[A-Za-z_]\w*)*"


@attrs.frozen
class Template:
    """A URI template, or a URI, which is one without variables.

    A variable ends where the text after it first appears, so matching takes linear time.
    """

    text: str
    path: tuple[str, ...]
    """The variables that every URI of the template has, in their order."""
    query: tuple[str, ...]
    """The variables that a URI may leave out."""
    _literals: tuple[str, ...]
    """The texts before, between and after the variables of the path."""
    _with_slashes: frozenset[str]
    """The variables whose values may have slashes."""

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables."""
        return self.path + self.query

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values of the variables in a URI; None if the URI is not of this template."""
        if not uri.startswith(self._literals[0]):
            return None
        head, _, tail = uri.partition("?") if self.query else (uri, "", "")
        first, *following = self._literals
        if not following:
            values: dict[str, str] | None = {} if head == first else None
        else:
            values = self._match_path(head, first, following)
        if values is None:
            return None
        pairs = [pair.partition("=") for pair in tail.split("&")]
        values |= {name: value for name, _, value in pairs if name in self.query}
        return {name: unquote(value) for name, value in values.items()}

    def _match_path(self, uri: str, first: str, following: list[str]) -> dict[str, str] | None:
        *between, last = following
        end = len(uri) - len(last)
        if not uri.endswith(last) or end < len(first):
            return None
        start = len(first)
        values: list[str] = []
        for literal in between:
            stop = uri.find(literal, start, end)
            if stop < 0:
                return None
            values.append(uri[start:stop])
            start = stop + len(literal)
        values.append(uri[start:end])
        found = dict(zip(self.path, values, strict=True))
        is_matched = all(
            value and (name in self._with_slashes or not _DELIMITERS.search(value))
            for name, value in found.items()
        )
        return found if is_matched else None


def parse_template(text: str) -> Template:
    """Return a template.

    Raises:
        LocalProtocolError: it is not of the supported form, or has no scheme.
    """
    literals, position = [""], 0
    path: list[str] = []
    query: tuple[str, ...] = ()
    with_slashes: set[str] = set()
    for found in _EXPRESSION.finditer(text):
        literals[-1] += text[position : found.start()]
        position, expression = found.end(), found[1]
        if re.fullmatch(rf"\?{_NAMES}", expression) and position == len(text):
            query = tuple(expression[1:].split(","))
        elif re.fullmatch(r"\+?[A-Za-z_]\w*", expression) and (literals[-1] or not path):
            name = expression.lstrip("+")
            path.append(name)
            literals.append("")
            if expression[0] == "+":
                with_slashes.add(name)
        else:
            raise _unsupported(text)
    literals[-1] += text[position:]
    has_brace = any("{" in literal or "}" in literal for literal in literals)
    if has_brace or len({*path, *query}) < len(path) + len(query):
        raise _unsupported(text)
    if not _SCHEME.match(text):
        raise LocalProtocolError(
            f"The URI {text!r} has no scheme, and some clients refuse the whole list then; write "
            f"one, as in {f'note://{text}'!r}"
        )
    return Template(text, tuple(path), query, tuple(literals), frozenset(with_slashes))


def _unsupported(text: str) -> LocalProtocolError:
    return LocalProtocolError(
        f"The URI template {text!r} is not supported. Write {{name}} for a part without slashes, "
        "{+name} for one with them, and {?a,b} at the end for parts that can be left out; each "
        "name once, and text between two names"
    )
