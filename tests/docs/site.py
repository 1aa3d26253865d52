"""What the documentation site has beside the pages in docs/: hooks of MkDocs, used by mkdocs.yml.

* The pages of the API are made of docstrings, one for each group of ``tests/house/public_api.py``.
  Those for programs show of a client what a program calls, and settings where they are taken.
* Files and folders of the checkout that a page links to are on the site, too, below ``source/``.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, TypeGuard, cast

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import sansmcp
from sansmcp_local import ConnectOptions, DriverOptions, ServeOptions

# MkDocs loads this file by its path, so nothing can be imported relative to it.
from tests.docs.settings import table
from tests.house import public_api
from tests.house.public_api import AUTHORS, USERS, Group

ROOT = Path(__file__).parents[2]

_SETTINGS: dict[str, tuple[type, ...]] = {
    "ClientSettings": (sansmcp.ClientOptions,),
    "ConnectSettings": (sansmcp.ClientOptions, ConnectOptions),
    "DriverSettings": (sansmcp.ServerOptions, DriverOptions),
    "ServeSettings": (sansmcp.ServerOptions, DriverOptions, ServeOptions),
}
"""Where the settings are explained that a function takes as keywords."""

_IMAGES = {".svg", ".png"}

_LINK_OR_CODE = re.compile(r"^( *)```.*?^\1```$|(?<=\]\()(?!\w+:)[^)#\s]+", re.M | re.S)
"""A block of code, which holds no links, or where a link within the project leads."""

_BOOST = {
    group: 0.2 if group in USERS and group.module != "sansmcp.schema" else 0.1
    for group in (*USERS, *AUTHORS)
}
"""Results of the search that explain come before those of the API."""

_NOT_SEARCHED = ("decisions/", "source/", "requirements.md", "history.md")
"""Pages that are not for who looks for a way to do something."""

_OF_ONE_USE = ("agent-frameworks.md", "event-streams.md", "lambda.md")
"""Pages whose titles have words of many questions, and which answer few of them."""

_ROLE = re.compile(r":\w+:`~?\.?([\w.]+)`")


@functools.cache
def public_names() -> dict[str, list[str]]:
    """The public names of every package and public module, by its name."""
    found: dict[str, list[str]] = {}
    for group in (*USERS, *AUTHORS):
        found.setdefault(group.module, []).extend(public_api.names_of(group))
    return found


def page_of(group: Group) -> str:
    """Where the page of a group is; a module with one group has it under its own name."""
    if sum(each.module == group.module for each in (*USERS, *AUTHORS)) == 1:
        return f"api/{group.module}.md"
    return f"api/{group.module}-{re.sub('[^a-z]+', '-', group.title.lower())}.md"


@event_priority(100)  # before mkdocstrings reads its options
def on_config(config: MkDocsConfig) -> None:
    """Put the pages of the API into the navigation, and have only its names referred to."""
    settings = cast("Any", config)  # its types say less than they could
    plugins = settings.plugins
    plugins["autorefs"].scan_toc = False  # not the headings of other pages
    for title, groups in (("API for programs", USERS), ("API for authors", AUTHORS)):
        settings.nav.append({title: [{group.title: page_of(group)} for group in groups]})
    python = plugins["mkdocstrings"].config["handlers"]["python"]
    # They export each other's names. Those come first whose docstrings others inherit.
    shared = ("sansmcp", "sansmcp_local")
    python["options"]["preload_modules"] = list(dict.fromkeys((*shared, *public_names())))


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages and files that are not in docs/."""
    for group in (*USERS, *AUTHORS):
        files.append(File.generated(config, page_of(group), content=_api_page(group)))
    waiting = [Path("docs", file.src_uri) for file in files if _is_ours(file)]
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
    """Point links at where their targets are on the site, and rank pages in the search."""
    if page.file.src_uri.startswith(_NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in _OF_ONE_USE:
        page.meta["search"] = {"boost": 0.3}
    path = _checkout_path(page.file.src_uri)
    if path is None:
        return markdown

    def replaced(found: re.Match[str]) -> str:
        if found[0].lstrip().startswith("```"):
            return found[0]
        target = _site_uri(_join(path, found[0]))
        return os.path.relpath(target, PurePosixPath(page.file.src_uri).parent)

    return _LINK_OR_CODE.sub(replaced, markdown)


class Docstrings(griffe.Extension):
    """Makes links of the roles in docstrings, such as :class:`App`; lets methods inherit them."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(_reference, obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show of the value of an attribute what a program can use: a default, or nothing."""
        attr.value = _default_of(attr)
        attr.labels -= {"class-attribute", "instance-attribute", "module-attribute"}

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Give the methods of a package without a docstring that of the method they replace."""
        waiting: list[griffe.Object] = [pkg]
        while waiting:
            found = waiting.pop()
            members = [each for each in found.members.values() if isinstance(each, griffe.Object)]
            waiting += [each for each in members if not isinstance(each, griffe.Function)]
            if isinstance(found, griffe.Class):
                for member in members:
                    member.docstring = member.docstring or _inherited(found, member.name)


def _default_of(attribute: griffe.Attribute) -> str | griffe.Expr | None:
    """The value of an attribute, the default of a field of attrs, or None for a parameter."""
    value = attribute.value
    if _is_call(value, "attrs.field"):
        given = [each for each in value.arguments if isinstance(each, griffe.ExprKeyword)]
        value = next((each.value for each in given if each.name == "default"), None)
    return None if str(value) == attribute.name or _is_call(value, "attrs.Factory") else value


def _is_call(value: str | griffe.Expr | None, function: str) -> TypeGuard[griffe.ExprCall]:
    return isinstance(value, griffe.ExprCall) and str(value.function) == function


def _inherited(kind: griffe.Class, name: str) -> griffe.Docstring | None:
    for base in kind.mro():
        member = base.members.get(name)
        if isinstance(member, griffe.Object) and member.docstring is not None:
            return member.docstring
    return None


def _reference(found: re.Match[str]) -> str:
    name = found[1]
    package, _, last = name.rpartition(".")
    for home in (package, *public_names()):
        if last in public_names().get(home, ()):
            return f"[`{name}`][{home}.{last}]"
    return f"`{name}`"


def _api_page(group: Group) -> str:
    """A group: what it is, and below it each public name."""
    stability = f"{group.stability.capitalize()} ([what that means](../stability.md#versions))."
    parts = [f"---\nsearch:\n  boost: {_BOOST[group]}\n---\n"]
    if page_of(group) == f"api/{group.module}.md":
        parts.append(_directive(group.module, _TOP))
    else:
        parts.append(f"# {group.title}\n\nFrom `{group.module}`.\n")
        if "Server" in group.names:  # the machines: the package explains them
            parts.append(_directive(group.module, {**_TOP, "show_root_heading": False}))
    parts.append(f"{stability}\n")
    names = public_api.names_of(group)
    for name in sorted(names, key=lambda name: not public_api.is_function(group.module, name)):
        parts += _entry(group, name)
    return "\n".join(parts)


_TOP = {"members": False, "heading_level": 1, "show_root_toc_entry": False}


def _entry(group: Group, name: str) -> Iterator[str]:
    options: dict[str, Any] = {}
    if group in USERS and group.module != "sansmcp.schema":
        found = public_api.members_of(group.module, name)
        used = [each for each in found if each[0] != "_" and public_api.is_used(name, each)]
        options = {"members": used, "inherited_members": used}
        if not public_api.is_used(name, "__init__"):  # an adapter makes it
            options["merge_init_into_class"] = False
    yield _directive(f"{group.module}.{name}", options)
    if taken := _SETTINGS.get(public_api.settings_of(group.module, name) if group in USERS else ""):
        lines = [line for kind in taken for line in table(kind)[0 if kind is taken[0] else 2 :]]
        yield "\n".join([f"### Settings of {name}\n", *lines, ""])


def _directive(identifier: str, options: dict[str, Any]) -> str:
    lines = [f"        {key}: {json.dumps(value)}" for key, value in options.items()]
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
    if path.parts[0] == "docs":
        return PurePosixPath(*path.parts[1:]).as_posix()
    uri = PurePosixPath("source", *path.parts)
    if (ROOT / path).is_dir():
        return (uri / "index.md").as_posix()
    shown_as_it_is = path.suffix in {".md", *_IMAGES}
    return uri.as_posix() if shown_as_it_is else f"{uri.as_posix()}.txt"


def _checkout_path(uri: str) -> Path | None:
    """What a page is made of; none for a page that is generated."""
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
