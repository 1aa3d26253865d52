"""Content: what functions return beside plain values, and its form in messages."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import attrs

from sansmcp.codecs.json import is_object
from sansmcp.types import elide

from ._revisions import Features
from ._schemas import check_json, encode, to_json


@attrs.frozen
class Image:
    """An image in the result of a tool, or in a prompt."""

    data: bytes = attrs.field(repr=elide)
    mime_type: str = "image/png"


@attrs.frozen
class Audio:
    """A sound in the result of a tool, or in a prompt.

    Clients of 2024-11-05, which know no audio, get it as an embedded resource.
    """

    data: bytes = attrs.field(repr=elide)
    mime_type: str = "audio/wav"


@attrs.frozen
class EmbeddedResource:
    """The contents of a resource: in the result of a tool, in a prompt, or of a read resource.

    ``meta``: members for their ``_meta``.
    """

    uri: str
    contents: str | bytes
    mime_type: str | None = None
    meta: Mapping[str, Any] | None = None


@attrs.frozen
class ResourceLink:
    """A link to a resource that the client can read, in the result of a tool or in a prompt.

    Clients of 2024-11-05 and 2025-03-26, which know no links, get a text with the URI.
    """

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None


Content: TypeAlias = str | Image | Audio | EmbeddedResource | ResourceLink
"""A block of content; a str is a text."""

CONTENT_TYPES = (Image, Audio, EmbeddedResource, ResourceLink)


@attrs.frozen
class Message:
    """A message of a prompt, or for :meth:`Context.sample`."""

    content: Content
    role: Literal["user", "assistant"] = "user"


@attrs.frozen
class ToolResult:
    """The result of a tool with all its parts, for a function that needs more than a value.

    Attributes:
        content: what the model reads.
        structured: a value for programs, which JSON has as an object; None for none.
        is_error: True if the tool has failed.
        meta: members for ``_meta``.
    """

    content: Sequence[Content] = ()
    structured: Any = None
    is_error: bool = False
    meta: Mapping[str, Any] | None = None


def error_result(text: str) -> dict[str, Any]:
    """Return the result of a tool that has failed, for the model."""
    return {"content": [_text(text)], "isError": True}


def is_content(annotation: Any) -> bool:
    """True if a type of results has content in it, and so no schema."""
    kinds = (*CONTENT_TYPES, ToolResult)
    return annotation in kinds or any(map(is_content, get_args(annotation)))


def tool_result(value: Any, features: Features, *, is_wrapped: bool | None) -> dict[str, Any]:
    """Return the result of a tool for what its function has returned.

    Args:
        value: what the function has returned.
        features: those of the revision of the call.
        is_wrapped: True if the output schema is that of ``{"result": value}``; None without an
            output schema.

    Raises:
        TypeError: a part of the value is of a type without a form in JSON.
        NotJsonError: a part of the value is not JSON.
    """
    result = _result(value, features, is_wrapped=is_wrapped)
    try:
        for each in result["content"]:
            _check_texts(each)
    except UnicodeEncodeError:
        check_json(result)
        raise
    return result


def _result(value: Any, features: Features, *, is_wrapped: bool | None) -> dict[str, Any]:
    if isinstance(value, ToolResult):
        return _full_result(value, features)
    if value is None and is_wrapped is None:
        return {"content": []}
    if isinstance(value, str) and is_wrapped is None:
        return {"content": [_text(value)]}
    if any(isinstance(each, CONTENT_TYPES) for each in _parts(value)):
        return {"content": [block(each, features) for each in _parts(value)]}
    plain: Any = to_json(value)
    structured: Any = {"result": plain} if is_wrapped or not is_object(plain) else plain
    text = plain if isinstance(plain, str) else encode(plain)
    result: dict[str, Any] = {"content": [_text(text)]}
    return {**result, "structuredContent": structured} if features.structured else result


def _full_result(result: ToolResult, features: Features) -> dict[str, Any]:
    members: dict[str, Any] = {
        "content": [block(each, features) for each in result.content],
        "isError": result.is_error,
    }
    if result.structured is not None and features.structured:
        members["structuredContent"] = to_json(result.structured)
    if result.meta is not None:
        members["_meta"] = dict(result.meta)
    check_json({**members, "content": None})
    return members


def _check_texts(block: Mapping[str, Any]) -> None:
    """Raise UnicodeEncodeError for a text of a block with half a character."""
    for value in block.values():
        if isinstance(value, str):
            if not value.isascii():
                value.encode()
        elif is_object(value):
            _check_texts(value)


def block(value: Any, features: Features) -> dict[str, Any]:
    """Return a block of content; a value that is no content becomes a text of JSON."""
    match value:
        case str():
            return _text(value)
        case Image():
            return {"type": "image", "data": _base64(value.data), "mimeType": value.mime_type}
        case Audio() if features.audio_and_hints:
            return {"type": "audio", "data": _base64(value.data), "mimeType": value.mime_type}
        case Audio():
            uri = f"sansmcp:{value.mime_type}"
            return block(EmbeddedResource(uri, value.data, value.mime_type), features)
        case EmbeddedResource():
            return {"type": "resource", "resource": contents_of(value)}
        case ResourceLink() if features.structured:
            members = {
                "uri": value.uri,
                "name": value.name,
                "title": value.title,
                "description": value.description,
                "mimeType": value.mime_type,
                "size": value.size,
            }
            return {"type": "resource_link", **without_none(members)}
        case ResourceLink():
            return _text(f"{value.title or value.name}: {value.uri}")
        case _:
            return _text(encode(to_json(value)))


def contents_of(resource: EmbeddedResource) -> dict[str, Any]:
    """Return the contents of a resource, as text or in base64."""
    contents = resource.contents
    said = {"blob": _base64(contents)} if isinstance(contents, bytes) else {"text": contents}
    members = {"uri": resource.uri, "mimeType": resource.mime_type, **said, "_meta": resource.meta}
    return without_none(members)


def resource_result(
    value: Any, uri: str, mime_type: str | None, meta: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the result of reading a resource for what its function has returned.

    Args:
        value: a text, bytes, an EmbeddedResource or a list of them; anything else becomes JSON.
        uri: the URI that was read.
        mime_type: the media type; None for a usual one.
        meta: ``_meta`` of contents without their own; None for none.

    Raises:
        TypeError: the value is of a type without a form in JSON.
        NotJsonError: a part of the value is not JSON.
    """
    parts = _parts(value)
    default = {} if meta is None else {"_meta": meta}
    if parts and all(isinstance(each, EmbeddedResource) for each in parts):
        contents = [{**default, **contents_of(each)} for each in parts]
        check_json([each.get("_meta") for each in contents])
        return {"contents": contents}
    if isinstance(value, str):
        whole = EmbeddedResource(uri, value, mime_type or "text/plain")
    elif isinstance(value, bytes):
        whole = EmbeddedResource(uri, value, mime_type or "application/octet-stream")
    else:
        whole = EmbeddedResource(uri, encode(to_json(value)), mime_type or "application/json")
    return {"contents": [{**default, **contents_of(whole)}]}


def prompt_messages(value: Any, features: Features) -> list[dict[str, Any]]:
    """Return the messages of a prompt for what its function has returned."""
    return [_message(each, features) for each in _parts(value)]


def sampling_messages(value: str | Message | Sequence[str | Message]) -> list[dict[str, Any]]:
    """Return the messages of a sampling request."""
    return prompt_messages(value, Features())


def _message(value: Any, features: Features) -> dict[str, Any]:
    message = value if isinstance(value, Message) else Message(value)
    return {"role": message.role, "content": block(message.content, features)}


def _parts(value: Any) -> Sequence[Any]:
    """Return the parts of a list or tuple; anything else is one part."""
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else [value]


def without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
