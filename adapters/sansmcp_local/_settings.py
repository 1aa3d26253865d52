"""Report an unknown setting in the name of the function that was called, with those there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def check_settings(given: Iterable[str], function: str, known: Collection[str], whose: str) -> None:
    """Raise TypeError for the first name that is not known, as Python does, and say what there is.

    Args:
        given: the names of the settings.
        function: the name of the function that was given them.
        known: those that it takes.
        whose: what they are settings of.
    """
    for name in given:
        if name not in known:
            raise TypeError(_unknown(name, function, known, whose))


def _unknown(name: str, function: str, known: Collection[str], whose: str) -> str:
    import difflib  # only who makes this mistake pays for it

    text = f"{function}() got an unexpected keyword argument {name!r}"
    near = difflib.get_close_matches(name, known, n=1)
    text += f"; did you mean {near[0]!r}?" if near else "."
    return f"{text} The settings of {whose} are {', '.join(sorted(known))}"
