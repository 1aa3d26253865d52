"""The metadata that are made when sansmcp is built; setup.cfg has all others.

* The publisher is that of the section ``publisher`` in setup.cfg, if it is filled in.
* PyPI shows the README away from the repository, so its links become absolute: they lead to the
  files of this version in the repository of the publisher.
"""

import configparser
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent

_LINK = re.compile(r"(!?\[[^\]]*\]\()(?![a-z]+:|#)([^)]+)\)")
"""A link to a file of the checkout, or an image of it; both may contain an image."""

_IMAGE = re.compile(r"\.(svg|png)$")


def publisher() -> dict[str, str]:
    """Return what the publisher has set in setup.cfg; empty values are not set."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    return dict(config["publisher"])


def version() -> str:
    """Return the version, without importing the package, which needs its dependencies."""
    text = (ROOT / "sansmcp" / "__init__.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return found


def readme(repository: str) -> str:
    """Return the README with absolute links to the files of this version."""

    def absolute(found: re.Match[str]) -> str:
        kind = "raw" if _IMAGE.search(found[2]) else "blob"
        return f"{found[1]}{repository}/{kind}/v{version()}/{found[2]})"

    return _LINK.sub(absolute, (ROOT / "README.md").read_text(encoding="utf-8"))


def urls(given: dict[str, str]) -> dict[str, str]:
    """Return the links that PyPI shows beside the page."""
    repository = given["repository"]
    return {
        "Documentation": f"{repository}/blob/v{version()}/docs/index.md",
        "Source": repository,
        "Changelog": f"{repository}/blob/v{version()}/CHANGELOG.md",
        "Issues": f"{repository}/issues",
        "Report a vulnerability": given["security"],
    }


def metadata() -> dict[str, object]:
    """Return the metadata that setup.cfg does not have."""
    given = publisher()
    if not all(given.values()):  # an installation from a checkout
        return {"long_description": (ROOT / "README.md").read_text(encoding="utf-8")}
    return {
        "author": given["author"],
        "author_email": given["email"],
        "long_description": readme(given["repository"]),
        "project_urls": urls(given),
    }


if __name__ == "__main__":
    setup(**metadata())
