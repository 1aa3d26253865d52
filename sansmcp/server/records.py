"""Records in the store, which instances of other versions write and read.

While a fleet is updated, instances of two versions share a store. So a record is a JSON object, and
two rules let each version go on with what the other has written:

* A later version may add members that an earlier one may ignore. This one keeps the members that it
  does not know, in ``unknown``, and writes them back with the record when it changes that.
* A member that a reader must understand comes with the member ``reader``: the lowest version of
  ``VERSION`` that can read the record. It says how old a reader may be, not how new the record is.
  A reader that is older changes nothing, and refuses the request that has led to the record.
  The same holds for an entry of a kind that the reader does not know (``EntryKind.UNKNOWN``).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs

from ..codecs import json
from ..store import Entry, EntryKind

VERSION: Final = 1
"""The version of this reader. A record without the member ``reader`` is for all versions."""

_READER: Final = "reader"

_Record = TypeVar("_Record", bound=attrs.AttrsInstance)

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
"""No unknown members, and no records inside a record."""


class RecordTooNewError(Exception):
    """A record can only be read by a later version."""


def record_in(entry: Entry) -> bytes:
    """Return the data of an entry, which are a record.

    Raises RecordTooNewError for an entry of a kind that only a later version knows.
    """
    if entry.kind is EntryKind.UNKNOWN:
        raise RecordTooNewError
    return entry.data


def read_members(data: bytes, max_depth: int) -> dict[str, Any]:
    """Return the members of a record. Raises RecordTooNewError if it is not for this version."""
    members = json.as_object(json.decode(data, max_depth))
    if members is None or members.get(_READER, VERSION) > VERSION:
        raise RecordTooNewError
    return members


def read_record(
    record: type[_Record],
    data: bytes,
    max_depth: int,
    inside: Mapping[str, type[attrs.AttrsInstance]] = NOTHING,
) -> _Record:
    """Return a record, with the members that this version does not know in its ``unknown``.

    Args:
        record: its class, which has an attribute ``unknown``.
        data: what ``write_record()`` has returned, perhaps that of another version.
        max_depth: the nesting that is read.
        inside: the classes of the records inside it, at any depth, by the names of their members.

    Raises RecordTooNewError; and TypeError if a member is missing that has no default.
    """
    members, unknown = _split(record, read_members(data, max_depth), inside)
    members["unknown"] = unknown
    return record(**members)


def write_record(record: attrs.AttrsInstance, unknown: Mapping[str, Any]) -> bytes:
    """Return the data of a record, with its unknown members.

    Raises LocalProtocolError if a member is not JSON.
    """
    return write_members(_merge(record, unknown))


def write_members(members: Mapping[str, Any]) -> bytes:
    """Return the data of a record whose members are these. Raises as write_record() does."""
    return json.encode(members)


def write_head(name: str, number: int, data: bytes) -> bytes:
    """Return data after a line with a name, which has no space, and a number."""
    return b"%s %d\n%s" % (name.encode(), number, data)


def read_head(data: bytes) -> tuple[str, int, bytes]:
    """Return the name, the number and the data after them.

    A later version may write further words after the number.
    """
    head, _, rest = data.partition(b"\n")
    name, number, *_ = head.split(b" ")
    return name.decode(), int(number), rest


def _split(
    record: type[attrs.AttrsInstance],
    members: Mapping[str, Any],
    inside: Mapping[str, type[attrs.AttrsInstance]],
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separate the members that this version knows from the others, also in records inside."""
    names = {field.name for field in attrs.fields(record)} - {"unknown"}
    known: dict[str, Any] = {}
    unknown: dict[str, Any] = {}
    for name, value in members.items():
        if name not in names:
            unknown[name] = value
        elif name in inside and value is not None:
            within, rest = _split(inside[name], value, inside)
            known[name] = inside[name](**within)
            if rest:
                unknown[name] = rest
        else:
            known[name] = value
    return known, unknown


def _merge(record: attrs.AttrsInstance, unknown: Mapping[str, Any]) -> dict[str, Any]:
    """Return all members. Those of a record inside that is no longer there go with it."""
    own = attrs.asdict(record, recurse=False)
    own.pop("unknown", None)
    members = {**unknown, **own}
    for name, value in members.items():
        if hasattr(value, "__attrs_attrs__"):
            members[name] = _merge(value, unknown.get(name, NOTHING))
    return members
