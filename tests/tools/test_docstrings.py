"""The descriptions of parameters come from docstrings of three styles."""

from __future__ import annotations

import pytest

from sansmcp_tools._docstrings import parse_docstring

GOOGLE = """Add two numbers.

    The sum is exact.

    Args:
        first: the first number,
            which may be long
        second (int): the second: any
        *rest, others (list[int], optional):
            more of them

    Returns:
        The sum.
    """

NUMPY = """Add two numbers.

    The sum is exact.

    Parameters
    ----------
    first : int
        the first number,
        which may be long
    second
        the second: any
    rest, others : list of int, optional
        more of them

    Returns
    -------
    int
        The sum.
    """

SPHINX = """Add two numbers.

    The sum is exact.

    :param first: the first number,
        which may be long
    :param int second: the second: any
    :type second: int
    :param rest: more of them
    :param others: more of them
    :returns: The sum.
    """

PARAMETERS = {
    "first": "the first number, which may be long",
    "second": "the second: any",
    "rest": "more of them",
    "others": "more of them",
}

RETURNS = {
    GOOGLE: "\n\nReturns:\n    The sum.",
    NUMPY: "\n\nReturns\n-------\nint\n    The sum.",
    SPHINX: "\n\n:returns: The sum.",
}


@pytest.mark.parametrize("docstring", RETURNS, ids=["google", "numpy", "sphinx"])
def test_parameters_are_described(docstring: str) -> None:
    found = parse_docstring(docstring)
    assert found.parameters == PARAMETERS
    assert found.text == "Add two numbers.\n\nThe sum is exact." + RETURNS[docstring]


@pytest.mark.parametrize(
    ("docstring", "text"),
    [
        (None, ""),
        ("", ""),
        ("One line.", "One line."),
        ("Args:", ""),
        ("Text.\n\nArgs:\nnot indented: so no section", "Text.\n\nnot indented: so no section"),
        ("Text.\n\nParameters\nare not underlined", "Text.\n\nParameters\nare not underlined"),
        ("Say: hello.\n\nNote:\n    Nothing.", "Say: hello.\n\nNote:\n    Nothing."),
        ("Text.\n\nArgs:\n    no colon here", "Text."),
    ],
)
def test_nothing_else_is_taken_for_a_parameter(docstring: str | None, text: str) -> None:
    found = parse_docstring(docstring)
    assert (found.text, found.parameters) == (text, {})
