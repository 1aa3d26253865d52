"""What is installed is what is in the tree, and it works without the tree."""

from __future__ import annotations

import configparser
import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import sansmcp

from ..release_check import VERSIONS, check_publisher, check_tag, page_of, targets
from .sources import ROOT, Module, adapters, core

TOPS = ["sansmcp", *adapters()]

EXTRA_OF = {
    "sansmcp.http2": "http2",
    "sansmcp.httptools_parser": "fast",
    "sansmcp_auth": "auth keyring",
    "sansmcp_cli": "cli",
    "sansmcp_httpx": "httpx",
    "sansmcp_local": "trio skills",
    "sansmcp_pytest": "pytest http2",
    "sansmcp_stores": "redis",
    "sansmcp_telemetry": "otel",
    "sansmcp_trio": "trio",
}
"""The extras that bring what a package needs beyond the requirements of all."""

STANDARD = sys.stdlib_module_names | {"tomllib"}
"""The modules of the standard library; tomllib has been one since Python 3.11."""

IMPORTED_AS = {
    "markdown-it-py": "markdown_it",
    "opentelemetry-api": "opentelemetry",
    "pyyaml": "yaml",
}
"""The packages of distributions that have another name."""

SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")


REPOSITORY = "https://git.example.com/ada/sansmcp"
PUBLISHER = {
    "author": "Ada",
    "email": "ada@example.com",
    "repository": REPOSITORY,
    "security": "https://git.example.com/report",
}
"""What the copy that is built has in setup.cfg."""


def entries(section: str, option: str) -> list[str]:
    return SETUP.get(section, option, fallback="").strip().splitlines()


def requirements(*extras: str) -> set[str]:
    """The packages that an installation brings, with some extras."""
    lines = entries("options", "install_requires")
    for extra in extras:
        lines += entries("options.extras_require", extra)
    names = {re.split(r"[^\w.-]", line)[0] for line in lines}
    if "sansmcp[test]" in lines:
        names = names - {"sansmcp"} | requirements("test")
    return {IMPORTED_AS.get(name, name) for name in names}


def undeclared(modules: list[Module], declared: set[str]) -> set[str]:
    """What modules import when they are run, and neither Python nor a requirement brings."""
    imported = {
        part.name.partition(".")[0]
        for module in modules
        for part in module.imports()
        if not part.is_for_types
    }
    return imported - declared - STANDARD - set(TOPS)


def files_of_the_tree() -> set[str]:
    """The files that belong into the wheel, under the names that they have there."""
    folders = [ROOT / "sansmcp", *(ROOT / "adapters" / name for name in adapters())]
    return {
        path.relative_to(folder.parent).as_posix()
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }


def run(*arguments: str | Path, cwd: Path, **environment: str) -> str:
    """Run Python, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both distributions; the tree was copied, so that nothing is left in it."""
    place = tmp_path_factory.mktemp("built")
    for path in ROOT.iterdir():
        if path.is_file() and not path.name.startswith("."):  # those of coverage come and go
            shutil.copy(path, place)
    skipped = shutil.ignore_patterns("__pycache__", "node_modules")
    for name in ("sansmcp", "adapters", "benchmarks", "docs", "examples", "tests"):
        shutil.copytree(ROOT / name, place / name, ignore=skipped)
    configuration = place / "setup.cfg"
    text = configuration.read_text(encoding="utf-8")
    for key, value in PUBLISHER.items():
        assert f"\n{key} =\n" in text, "a test publishes nothing with the values of the publisher"
        text = text.replace(f"\n{key} =\n", f"\n{key} = {value}\n")
    configuration.write_text(text, encoding="utf-8")
    run("-m", "build", "--no-isolation", cwd=place)  # the wheel is made of the other one
    return place / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    (wheel,) = built.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """A folder in which nothing but the wheel is installed."""
    folder = wheel.parent / "site"
    options = ("--no-deps", "--no-index", "--disable-pip-version-check", "--quiet")
    run("-m", "pip", "install", *options, "--target", folder, wheel, cwd=wheel.parent)
    return folder


def test_every_package_is_listed() -> None:
    modules = core() + [module for package in adapters().values() for module in package]
    packages = sorted(module.name for module in modules if module.is_package)
    assert entries("options", "packages") == packages
    folders = [line.split(" = ") for line in entries("options", "package_dir")]
    assert [name for name, _ in folders] == TOPS
    assert [name for name, folder in folders if not (ROOT / folder / "py.typed").exists()] == []


def test_the_extras() -> None:
    assert {"trio", "cli", "test", "dev"} <= set(SETUP.options("options.extras_require"))
    assert (
        requirements("trio") <= requirements("cli") <= requirements("test") <= requirements("dev")
    )


def test_every_requirement_is_declared() -> None:
    packages = {"sansmcp": core(), **adapters()}
    for name in EXTRA_OF.keys() - packages.keys():  # parts of the core that are only for some
        packages[name] = [module for module in core() if module.name.startswith(name)]
        rest = packages["sansmcp"]
        packages["sansmcp"] = [module for module in rest if module not in packages[name]]
    missing = {
        name: undeclared(modules, requirements(*EXTRA_OF.get(name, "").split()))
        for name, modules in packages.items()
    }
    assert not any(missing.values()), missing


def test_a_requirement_that_is_not_declared_is_found() -> None:
    module = Module("sansmcp_trio._client", "import trio, outcome\nfrom mcp.types import Tool")
    assert undeclared([module], requirements("trio")) == {"mcp", "outcome"}


def test_the_newest_release_of_the_change_log_is_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(each for each in headings if each != "Unreleased") == sansmcp.__version__


def test_the_wheel_holds_the_modules_of_the_tree(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert held == files_of_the_tree()


def test_the_page_on_pypi_leads_to_files_of_this_version(wheel: Path) -> None:
    page = page_of(wheel)
    assert "<h1" in page
    links = targets(page)
    files = [
        link.removeprefix(f"{REPOSITORY}/{kind}/v{sansmcp.__version__}/")
        for link in links
        for kind in ("blob", "raw")
        if link.startswith(f"{REPOSITORY}/{kind}/")
    ]
    assert len(files) > 20
    assert [file for file in files if not (ROOT / file.partition("#")[0]).exists()] == []
    assert [link for link in links if not link.startswith("https://")] == []
    assert [link for link in links if link.endswith(".svg") and "/raw/" not in link] == []


def test_the_metadata_name_the_publisher(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(opened.read(name))
    assert (metadata["Author"], metadata["Author-email"]) == ("Ada", "ada@example.com")
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert urls["Source"] == REPOSITORY
    assert urls["Report a vulnerability"] == PUBLISHER["security"]
    assert urls["Changelog"].endswith(f"/v{sansmcp.__version__}/CHANGELOG.md")


def test_classifiers_name_what_ci_runs() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = "\n".join(entries("metadata", "classifiers"))
    named = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", lines, re.MULTILINE)
    assert tuple(named) == VERSIONS
    systems = re.findall(r"^Operating System :: (.*)$", lines, re.MULTILINE)
    assert systems == ["POSIX :: Linux"]  # Windows was seen under wine alone, macOS not at all
    assert [version for version in named if version not in ci and version != "3.11"] == []


def test_nothing_is_released_without_a_publisher() -> None:
    check_publisher(PUBLISHER)
    with pytest.raises(SystemExit, match=r"set security in setup\.cfg"):
        check_publisher({**PUBLISHER, "security": ""})
    with pytest.raises(SystemExit, match=r"repository in setup\.cfg must be a URL"):
        check_publisher({**PUBLISHER, "repository": "git@example.com:ada"})


def test_the_tag_is_that_of_the_version() -> None:
    check_tag(f"v{sansmcp.__version__}", ROOT)
    with pytest.raises(SystemExit, match=r"The tag v0\.0\.1 is not that of version"):
        check_tag("v0.0.1", ROOT)


@pytest.mark.parametrize("name", ["release.yml", "tests.yml"])
def test_a_workflow_runs_what_exists(name: str) -> None:
    text = (ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"make ([\w-]+)", text)
    assert commands
    assert [each for each in commands if f"\n{each}:" not in makefile] == []
    assert [path for path in re.findall(r"tests/[\w/.]+", text) if not (ROOT / path).exists()] == []


def test_the_source_distribution_holds_what_the_readme_links_to(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    links = re.findall(r"\]\(([^):#]+)\)", (ROOT / "README.md").read_text())
    assert links != []
    assert [link for link in links if link not in held] == []


def test_the_wheel_is_sound(wheel: Path) -> None:
    options = ("--no-config", "--toplevel", ",".join(TOPS))
    run("-m", "check_wheel_contents", *options, wheel, cwd=wheel.parent)


def test_what_is_installed_can_be_imported(site: Path, tmp_path: Path) -> None:
    code = "; ".join(f"import {name}; print({name}.__file__)" for name in TOPS)
    printed = run("-c", code, cwd=tmp_path, PYTHONPATH=str(site))
    assert printed.split() == [str(site / name / "__init__.py") for name in TOPS]


def test_what_is_installed_can_be_run(site: Path, tmp_path: Path) -> None:
    printed = run("-m", "sansmcp_cli", "--version", cwd=tmp_path, PYTHONPATH=str(site))
    assert printed == f"sansmcp {sansmcp.__version__}\n"
    assert entries("options.entry_points", "console_scripts") == ["sansmcp = sansmcp_cli:main"]


def test_pytest_finds_its_plugin() -> None:
    assert entries("options.entry_points", "pytest11") == ["sansmcp = sansmcp_pytest._plugin"]


def test_the_lowest_versions_are_those_of_the_constraints() -> None:
    """What CI installs with tests/lowest.txt is the lowest that setup.cfg allows."""
    lines = entries("options", "install_requires")
    extras = (
        "auth",
        "trio",
        "cli",
        "httpx",
        "httpx2",
        "keyring",
        "redis",
        "otel",
        "skills",
        "http2",
        "fast",
    )
    for extra in extras:
        lines += entries("options.extras_require", extra)
    allowed = dict(re.findall(r"^([\w-]+) >= ([\d.]+)", "\n".join(lines), re.MULTILINE))
    del allowed["typing_extensions"]  # what the tests use needs newer ones
    listed = (ROOT / "tests" / "lowest.txt").read_text()
    pinned = dict(re.findall(r"^([\w-]+) == ([\d.]+)$", listed, re.MULTILINE))
    assert allowed.keys() == pinned.keys()
    wrong = [name for name in allowed if not pinned[name].startswith(allowed[name])]
    assert wrong == []
