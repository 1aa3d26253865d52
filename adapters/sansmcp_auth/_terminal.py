"""A login by hand, where no browser can be opened: over SSH, in a container."""

from __future__ import annotations

import sys


def print_login(url: str) -> str:
    """Print the URL on standard error, and read from standard input where the browser was sent.

    The browser cannot load that page, and shows its URL all the same: copy it from there.
    """
    print(f"Open this URL in a browser, and log in:\n\n{url}\n", file=sys.stderr)
    print(
        "Then paste the URL of the page that does not load: ", end="", file=sys.stderr, flush=True
    )
    return input().strip()
