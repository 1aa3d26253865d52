"""What each revision can say about tools, and in their results."""

from __future__ import annotations

import attrs

from sansmcp import BaseCall


@attrs.frozen(kw_only=True)
class Features:
    """What the clients of a revision understand; the rest is left out, or said in another way."""

    audio_and_hints: bool = True
    """Audio in content, and the annotations of tools. Source: 2025-03-26 server/tools."""
    structured: bool = True
    """Structured content, output schemas, links to resources and titles. Source: 2025-06-18
    server/tools.
    """
    icons: bool = True
    """Icons of tools, resources and prompts. Source: 2025-11-25 basic: Icons."""


FEATURES = {
    "2024-11-05": Features(audio_and_hints=False, structured=False, icons=False),
    "2025-03-26": Features(structured=False, icons=False),
    "2025-06-18": Features(icons=False),
    "2025-11-25": Features(),
    "2026-07-28": Features(),
}
"""The features of every revision that the library speaks."""


def features_of(call: BaseCall[object, object]) -> Features:
    """Return the features of the revision of a call."""
    return FEATURES[call.peer.revision.name]
