"""Convert words that a person types into the values that a JSON schema asks for.

The arguments of a tool and the fields of a form are read the same way. What the schema says beyond
types, enumerations and simple bounds is left to the server, which validates everything anyway.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime
from itertools import islice
from typing import Any

from sansmcp.codecs.json import as_object, is_array
from sansmcp.types import elide
from sansmcp_local import load_json

from ._references import Schema

_MOST_MEMBERS = 20_000
"""Members and choices of all alternatives of a schema together."""

_TRUE, _FALSE = ("true", "yes", "y"), ("false", "no", "n")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")


def alternatives(schema: Schema) -> list[Schema]:
    """Return the schemas of which a value must fulfil one, as ``anyOf`` and ``oneOf`` list them.

    Two lists within each other multiply, so only the first 200 are returned, and fewer of a schema
    with thousands of members or choices, which each of them has.
    """
    choices = schema.get("enum")
    weight = len(schema) + (len(choices) if is_array(choices) else 0)
    return [*islice(_alternatives(schema), max(1, min(200, _MOST_MEMBERS // (weight or 1))))]


def _alternatives(schema: Schema) -> Iterator[Schema]:
    for name in ("anyOf", "oneOf"):
        options: Any = schema.get(name)
        if is_array(options) and options:
            beside = {key: value for key, value in schema.items() if key != name}
            for option in options:
                yield from _alternatives({**beside, **(as_object(option) or {})})
            return
    yield schema


def types_of(schema: Schema) -> tuple[str, ...]:
    """Return the types that a schema allows; empty if it allows every type."""
    found: dict[str, None] = {}
    for leaf in alternatives(schema):
        kind: Any = leaf.get("type")
        if isinstance(kind, str):
            kinds = [kind]
        elif is_array(kind):
            kinds = [str(each) for each in kind]
        else:
            kinds = [_type_of(value) for value in _own_choices(leaf) or ()]
        if not kinds:
            return ()
        found.update(dict.fromkeys(kinds))
    return tuple(found)


def choices_of(schema: Schema) -> list[Any] | None:
    """Return the values of an enumeration, of which null may be one; None if it is none."""
    leaves = alternatives(schema)
    if all(types_of(leaf) == ("null",) for leaf in leaves):
        return _own_choices(schema)
    found: list[Any] = []
    for leaf in leaves:
        values = _own_choices(leaf)
        if values is None and types_of(leaf) == ("null",):
            values = [None]
        if values is None:
            return None
        found += values
    return found


def _own_choices(schema: Schema) -> list[Any] | None:
    if is_array(schema.get("enum")):
        return list(schema["enum"])
    return [schema["const"]] if "const" in schema else None


def describe(schema: Schema) -> str:
    """Return words for what a schema asks for, such as ``integer from 1 to 5``."""
    choices = choices_of(schema)
    if choices is not None:
        return " | ".join(text_of(choice) for choice in choices)
    return " or ".join(dict.fromkeys(map(_describe_one, alternatives(schema))))


def _describe_one(schema: Schema) -> str:
    choices = _own_choices(schema)
    if choices is not None:
        return " | ".join(text_of(choice) for choice in choices)
    words = " or ".join(types_of(schema)) or "any value"
    words = words.replace("boolean", "yes or no")
    if words == "array":
        items = as_object(schema.get("items")) or {}
        words = f"list of {describe(items)}" if items else "list"
    if isinstance(schema.get("format"), str):
        words += f" ({schema['format']})"
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None:
        words += f" from {text_of(least)}"
    if most is not None:
        words += f" to {text_of(most)}"
    return words


def text_of(value: Any) -> str:
    """Return the word that a person types for a value."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def convert(text: str, schema: Schema) -> Any:
    """Return the value that a word stands for.

    Raises ValueError, whose text completes a sentence such as "a ...".
    """
    choices = choices_of(schema)
    if choices is not None:
        for choice in choices:
            if text_of(choice) == text:
                return choice
        raise ValueError(f"must be one of {describe(schema)}, got {elide(text)}")
    if not types_of(schema):
        return _guess(text)
    reason = f"must be {_article(describe(schema))}, got {elide(text)}"
    for kind, leaf in _in_order(alternatives(schema)):
        own = _own_choices(leaf)
        if own is not None:
            value = next((choice for choice in own if text_of(choice) == text), _NONE)
        else:
            value = _converted(text, kind)
        if value is _NONE:
            continue
        try:
            _check(value, leaf)
        except ValueError as error:
            reason = str(error)
        else:
            return value
    raise ValueError(reason)


_NONE = object()


def _converted(text: str, kind: str) -> Any:
    try:
        return _CONVERT[kind](text)
    except ValueError:
        return _NONE


def _in_order(leaves: list[Schema]) -> list[tuple[str, Schema]]:
    """Return each type of each alternative, those first that allow the fewest words."""
    found = [(kind, leaf) for leaf in leaves for kind in types_of(leaf) if kind in _CONVERT]
    if not found:
        return [("string", leaf) for leaf in leaves]
    order = [*_CONVERT]
    return sorted(found, key=lambda pair: (_own_choices(pair[1]) is None, order.index(pair[0])))


def is_list(schema: Schema, count: int) -> bool:
    """True if so many words stand for a list, and not each for a value of its own."""
    kinds = set(types_of(schema)) - {"null"}
    return kinds == {"array"} or ("array" in kinds and count > 1)


def convert_words(texts: list[str], schema: Schema) -> Any:
    """Return the value that the words for one name stand for. Raises ValueError."""
    if is_list(schema, len(texts)):
        return convert_list(texts, schema)
    if len(texts) > 1:
        raise ValueError(f"is given {len(texts)} times, and takes one value")
    return convert(texts[0], schema)


def convert_list(texts: list[str], schema: Schema) -> Any:
    """Return the list that several words stand for, or one word that is a JSON array.

    Raises ValueError, as :func:`convert` does.
    """
    kinds = types_of(schema)
    if texts == ["null"] and "null" in kinds:
        return None
    leaves = alternatives(schema)
    schema = next((leaf for leaf in leaves if "array" in types_of(leaf)), schema)
    if len(texts) == 1 and texts[0].lstrip().startswith("["):
        values: Any = convert(texts[0], {"type": "array"})
    else:
        first: Any = schema.get("prefixItems")
        places = [*map(as_object, first)] if is_array(first) else []
        items = as_object(schema.get("items"))
        values = [
            convert(text, (places[number] if number < len(places) else items) or {})
            for number, text in enumerate(texts)
        ]
    least, most = _bounds(schema, "minItems", "maxItems")
    if not least <= len(values) <= most:
        raise ValueError(f"must have {_range(least, most)} items, got {len(values)}")
    return values


def _type_of(value: Any) -> str:
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "array" if is_array(value) else "object"


def _guess(text: str) -> Any:
    """Return the JSON value that a word is, or else the word."""
    try:
        return load_json(text)
    except ValueError:
        return text


def _integer(text: str) -> int:
    return int(text.strip().replace("_", "x"))


def _number(text: str) -> int | float:
    try:
        return _integer(text)
    except ValueError:
        value = float(text.strip().replace("_", "x"))
        if not math.isfinite(value):
            raise ValueError("JSON has no such number") from None
        return value


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise ValueError("not yes or no")
    return word in _TRUE


def _null(text: str) -> None:
    if text.strip() != "null":
        raise ValueError("not null")


def _json_of(kind: type) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        value = load_json(text)
        if not isinstance(value, kind):
            raise ValueError("of another type")
        return value

    return parse


# In the order in which types are tried: every word is a string.
_CONVERT: dict[str, Callable[[str], Any]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "array": _json_of(list),
    "object": _json_of(dict),
    "string": str,
}


def _check(value: Any, schema: Schema) -> None:
    if isinstance(value, str):
        _check_text(value, schema)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = _bounds(schema, "minimum", "maximum")
        if not least <= value <= most:
            raise ValueError(f"must be {_range(least, most)}, got {value}")


def _check_text(text: str, schema: Schema) -> None:
    least, most = _bounds(schema, "minLength", "maxLength")
    if not least <= len(text) <= most:
        raise ValueError(f"must have {_range(least, most)} characters, got {len(text)}")
    kind = schema.get("format")
    if isinstance(kind, str) and not _FORMATS.get(kind, _anything)(text):
        raise ValueError(f"must be {_article(kind)}, got {elide(text)}")


def _anything(text: str) -> bool:
    return True


def _is_made_by(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


def _moment(text: str) -> object:
    # Python 3.10 does not know the Z.
    return datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))


_FORMATS: dict[str, Callable[[str], bool]] = {
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
    "date": _is_made_by(date.fromisoformat),
    "date-time": _is_made_by(_moment),
}


def _bounds(schema: Schema, least: str, most: str) -> tuple[float, float]:
    """Return two bounds; a server may have sent anything, and what is no number is none."""
    bounds = (schema.get(least), schema.get(most))
    low, high = (
        bound if isinstance(bound, int | float) and not isinstance(bound, bool) else None
        for bound in bounds
    )
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _range(least: float, most: float) -> str:
    if most == math.inf:
        return f"{least} or more"
    return f"{most} or less" if least == -math.inf else f"from {least} to {most}"


def _article(words: str) -> str:
    if words in ("any value", "yes or no"):
        return words
    return f"an {words}" if words[0] in "aeio" else f"a {words}"
