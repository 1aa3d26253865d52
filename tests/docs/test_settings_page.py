"""The page of settings is what the classes of options say."""

from __future__ import annotations

import attrs

from sansmcp import ClientOptions

from .documents import DOCS
from .settings import PAGE, explanations, page


def test_the_page_of_settings_is_up_to_date() -> None:
    text = "write it anew: python -m tests.docs.settings"
    assert PAGE.read_text(encoding="utf-8") == page(), text


def test_explanations_are_found() -> None:
    class Options:
        """Some.

        Attributes:
            first: is explained,
                on two lines: like this.
            second:
            third: too.
        """

    assert explanations(Options) == {
        "first": "is explained, on two lines: like this.",
        "third": "too.",
    }


def test_defaults_in_prose_are_those_of_the_options() -> None:
    options, text = attrs.fields(ClientOptions), (DOCS / "production.md").read_text("utf-8")
    assert f"`connect_timeout` ({options.connect_timeout.default:g} seconds)" in text
    assert f"{options.timeout.default:g} seconds is the default" in text
