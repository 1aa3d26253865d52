"""What the documentation site has beside the pages in docs/: hooks of MkDocs, used by mkdocs.yml.

* The README is its first page.
* Each package has a page with all its public names, made of their docstrings.
* Files and folders of the checkout that a page links to are on the site, too, below ``source/``.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, cast

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]

MODULES = ("effects", "events", "process", "testing", "trace")
"""The public modules of ``sansmcp`` that are not packages of their own."""

_IMAGES = {".svg", ".png"}

_LINK_OR_CODE = re.compile(r"^( *)```.*?^\1```$|(?<=\]\()(?!\w+:)[^)#\s]+", re.M | re.S)
"""A block of code, which holds no links, or where a link within the project leads."""

_LINK_OUT = re.compile(r"\[([^\]]+)\]\((?:\.\./)+security/[^)]*\)")
"""A link to a page of the service that hosts the repository. Elsewhere its text has to do."""

_AFTER_PAGES = "---\nsearch:\n  boost: 0.3\n---\n"
"""Results of the search that explain come before those of the API."""

_ROLE = re.compile(r":\w+:`~?\.?([\w.]+)`")


@functools.cache
def public_names() -> dict[str, list[str]]:
    """The public names of every package and public module, by its name."""
    adapters = sorted(path.parent.name for path in (ROOT / "adapters").glob("*/__init__.py"))
    names = ["sansmcp", *(f"sansmcp.{name}" for name in MODULES), *adapters]
    return {name: _names_of(name) for name in names}


def _names_of(name: str) -> list[str]:
    module = importlib.import_module(name)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        key
        for key, value in vars(module).items()
        if key[0] != "_" and getattr(value, "__module__", None) == name
    )


@event_priority(100)  # before mkdocstrings reads its options
def on_config(config: MkDocsConfig) -> None:
    """Put the pages of the API into the navigation, and have only its names referred to."""
    settings = cast("Any", config)  # its types say less than they could
    plugins = settings.plugins
    plugins["autorefs"].scan_toc = False  # not the headings of other pages
    settings.nav.append({"API": [{name: f"api/{name}.md"} for name in public_names()]})
    python = plugins["mkdocstrings"].config["handlers"]["python"]
    python["options"]["preload_modules"] = list(public_names())  # they export each other's names


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages and files that are not in docs/."""
    for name, names in public_names().items():
        files.append(File.generated(config, f"api/{name}.md", content=_api_page(name, names)))
    waiting = [Path("README.md"), *(Path("docs", file.src_uri) for file in files if _is_ours(file))]
    seen = {*waiting}
    while waiting:
        path = waiting.pop()
        uri = _site_uri(path)
        if files.get_file_from_path(uri) is None:
            files.append(_file_of(path, uri, config))
        found = {link for link in _linked(path) if (ROOT / link).exists()} - seen
        seen |= found
        waiting += found


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at where their targets are on the site."""
    path = _checkout_path(page.file.src_uri)
    if path is None:
        return markdown

    def replaced(found: re.Match[str]) -> str:
        if found[0].lstrip().startswith("```"):
            return found[0]
        target = _site_uri(_join(path, found[0]))
        return os.path.relpath(target, PurePosixPath(page.file.src_uri).parent)

    return _LINK_OR_CODE.sub(replaced, _LINK_OUT.sub(r"\1", markdown))


class Roles(griffe.Extension):
    """Makes links of the roles in docstrings, such as :class:`App`."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_reference, obj.docstring.value)


def _reference(found: re.Match[str]) -> str:
    name = found[1]
    package, _, last = name.rpartition(".")
    for home in (package, *public_names()):
        if last in public_names().get(home, ()):
            return f"[`{name}`][{home}.{last}]"
    return f"`{name}`"


def _api_page(name: str, names: list[str]) -> str:
    """One package: its docstring, and below it each public name."""
    own = {"members": False, "heading_level": 1, "show_root_toc_entry": False}
    parts = [_directive(name, own), *(_directive(f"{name}.{each}", {}) for each in names)]
    return "\n".join([_AFTER_PAGES, *parts])


def _directive(identifier: str, options: dict[str, Any]) -> str:
    lines = [f"        {key}: {str(value).lower()}" for key, value in options.items()]
    return "\n".join([f"::: {identifier}", *(["    options:", *lines] if lines else []), ""])


def _is_ours(file: File) -> bool:
    return file.is_documentation_page() and file.generated_by is None


def _file_of(path: Path, uri: str, config: MkDocsConfig) -> File:
    if (ROOT / path).is_dir():
        return File.generated(config, uri, content=_listing(path))
    return File.generated(config, uri, abs_src_path=str(ROOT / path))


def _listing(folder: Path) -> str:
    """A page that lists what a folder holds."""
    names = sorted(
        path.name + "/" * path.is_dir()
        for path in (ROOT / folder).iterdir()
        if path.name != "__pycache__"
    )
    return "\n".join([f"# {folder.as_posix()}\n", *(f"* `{name}`" for name in names), ""])


def _site_uri(path: Path) -> str:
    """Where a file or folder of the checkout is on the site."""
    if path == Path("README.md"):
        return "index.md"
    if path.parts[0] == "docs":
        return PurePosixPath(*path.parts[1:]).as_posix()
    uri = PurePosixPath("source", *path.parts)
    if (ROOT / path).is_dir():
        return (uri / "index.md").as_posix()
    shown_as_it_is = path.suffix in {".md", *_IMAGES}
    return uri.as_posix() if shown_as_it_is else f"{uri.as_posix()}.txt"


def _checkout_path(uri: str) -> Path | None:
    """What a page is made of; none for a page that is generated."""
    if uri == "index.md":
        return Path("README.md")
    inside = PurePosixPath(uri).parts
    path = Path(*inside[1:]) if inside[0] == "source" else Path("docs", *inside)
    return path if (ROOT / path).is_file() else None


def _linked(path: Path) -> Iterator[Path]:
    """What a page links to within the checkout."""
    if path.suffix == ".md":
        for found in _LINK_OR_CODE.finditer((ROOT / path).read_text(encoding="utf-8")):
            if not found[0].lstrip().startswith("```"):
                yield _join(path, found[0])


def _join(page: Path, link: str) -> Path:
    path = Path(os.path.normpath(page.parent / link))
    readme = path / "README.md"
    return readme if (ROOT / readme).is_file() else path
