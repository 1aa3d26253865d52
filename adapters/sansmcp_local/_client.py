"""A client machine with the randomness of this process, and what its clients have found out."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import sansmcp

if TYPE_CHECKING:
    from typing_extensions import Unpack

_VERDICTS = sansmcp.Verdicts()


def new_client(
    target: str | Sequence[str], **settings: Unpack[sansmcp.ClientSettings]
) -> sansmcp.Client:
    """Make the machine of a client; settings and errors are those of :class:`sansmcp.Client`.

    Unless ``verdicts`` is set, all clients of this process share one. Raises TypeError for an
    unknown setting.
    """
    known = sansmcp.ClientSettings.__optional_keys__
    for name in settings:
        if name not in known:
            raise TypeError(_unknown(name, known))
    settings.setdefault("verdicts", _VERDICTS)
    return sansmcp.Client(target, jitter=random.random, **settings)


def _unknown(name: str, known: Collection[str]) -> str:
    import difflib  # only who makes this mistake pays for it

    text = f"connect() got an unexpected keyword argument {name!r}"
    near = difflib.get_close_matches(name, known, n=1)
    text += f"; did you mean {near[0]!r}?" if near else "."
    return f"{text} The settings of a client are {', '.join(sorted(known))}"
