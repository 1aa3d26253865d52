"""The page of settings is what the classes of options say."""

from __future__ import annotations

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
