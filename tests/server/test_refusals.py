"""The table of refusals: rules that every template must keep."""

from __future__ import annotations

import string

import pytest

from sansmcp.server import refusals
from sansmcp.server.refusals import RefusalTemplate

TEMPLATES = {
    name: template
    for name, template in vars(refusals).items()
    if isinstance(template, RefusalTemplate)
}


def named(template: RefusalTemplate) -> list[str]:
    """The values that a text names."""
    return [name for _, name, _, _ in string.Formatter().parse(template.text) if name is not None]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_makes_an_error(name: str) -> None:
    template = TEMPLATES[name]
    values = dict.fromkeys(named(template), "x{y}")
    error = template(7, data={"more": 1}, headers=((b"allow", b"GET"),), **values)
    assert (error.http_status, error.jsonrpc_code) == (template.status, template.code)
    assert (error.request_id, error.headers) == (7, ((b"allow", b"GET"),))
    assert error.reply.data == {
        "reason": template.reason,
        **dict.fromkeys(template.data_fields, "x{y}"),
        "more": 1,
    }
    assert not template.text.endswith(".")
    assert template.reason.replace("_", "").isalpha()


def test_the_text_names_all_data_fields() -> None:
    assert [
        name
        for name, template in TEMPLATES.items()
        if not {*template.data_fields} <= {*named(template)}
    ] == []


def test_a_reason_means_one_thing() -> None:
    """Templates of one reason differ by their text, or by what revisions prescribe."""
    assert len(
        {
            (template.status, template.code, template.reason, template.text)
            for template in TEMPLATES.values()
        }
    ) == len(TEMPLATES)
