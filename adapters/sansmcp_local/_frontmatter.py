"""The frontmatter of ``SKILL.md``: YAML between two lines of dashes, as JSON.

YAML 1.1 and 1.2 read some plain texts differently. Only what both read alike gets a type: null,
true and false, decimal numbers. Dates, octal and sexagesimal numbers, ``yes`` and ``no`` stay the
text that their author wrote. Aliases are refused, as a few bytes of them become gigabytes of JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar, cast

from sansmcp import _lazy

with _lazy.needing("The frontmatter of skills", "skills", "yaml"):
    import yaml

_MAX_CHARACTERS = 32 * 1024
"""Characters of a frontmatter. PyYAML reads some 100,000 in a second."""

_MAX_DEPTH = 32

_FENCED = re.compile(r"\ufeff?---[ \t]*\r?\n(|.*?\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)


_SafeLoader: Any = yaml.SafeLoader


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Makes JSON of YAML."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}
    _depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        if self.peek_event().tag:  # a mapping, a sequence or a scalar has one, or None
            raise yaml.YAMLError("tags are not supported")
        if self._depth == _MAX_DEPTH:
            raise yaml.YAMLError(f"it nests more than {_MAX_DEPTH} levels deep")
        self._depth += 1
        base: Any = super()
        node = base.compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.YAMLError("a key is not a text")
            if key.value in found:
                raise yaml.YAMLError(f"it has the key {key.value[:100]!r} twice")
            found[key.value] = self.construct_object(value, deep=True)
        return cast("dict[Any, Any]", found)


def _read_float(loader: Any, node: Any) -> float:
    return float(node.value)


_NUMBER = r"[-+]?(?:0|[1-9][0-9]{0,17})"
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _NUMBER, list("-+0123456789")),
    ("float", rf"{_NUMBER}\.[0-9]{{1,30}}", list("-+0123456789")),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), _first
    )
_Loader.add_constructor("tag:yaml.org,2002:float", _read_float)


def parse_frontmatter(text: str) -> dict[str, Any]:
    """Return the frontmatter of a ``SKILL.md``, as JSON has it.

    Raises:
        ValueError: the text does not begin with frontmatter, or it is not a mapping that JSON can
            have, or is larger than 32 KiB. The message says why.
    """
    found = _FENCED.match(text[: _MAX_CHARACTERS + 16])
    if found is None:
        raise ValueError(
            "SKILL.md does not begin with frontmatter between two lines of '---', or it has "
            f"more than {_MAX_CHARACTERS} characters"
        )
    try:
        parsed = yaml.load(found[1], Loader=_Loader)  # which is a SafeLoader
        json.dumps(parsed, ensure_ascii=False).encode()  # an escape can be half of a character
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # OverflowError: "\\UFFFFFFFF"
        raise ValueError(f"The frontmatter cannot be read: {error}") from None
    if not isinstance(parsed, dict):
        raise ValueError("The frontmatter is not a mapping")
    return cast("dict[str, Any]", parsed)
