"""The programs of the page on web frameworks serve their tools, and what else the framework has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sansmcp_blocking

from ..examples.test_examples import wait_for
from ..ports import free_port
from .documents import DOCS, ROOT, blocks

TOOLS, FASTAPI, FLASK, DJANGO = blocks(DOCS / "web-frameworks.md", "python")

SETTINGS = "SECRET_KEY = 'any'\nROOT_URLCONF = 'settings'\nurlpatterns = []\n"
"""The settings of a Django project without pages."""

UVICORN = ["uvicorn", "--log-level", "error", "--port"]
GUNICORN = ["gunicorn", "--log-level", "error", "--threads", "4", "--bind"]


@pytest.mark.parametrize(
    ("code", "server"),
    [(FASTAPI, UVICORN), (FLASK, GUNICORN), (DJANGO, UVICORN)],
    ids=["fastapi", "flask", "django"],
)
def test_it_serves_the_tools(code: str, server: list[str], tmp_path: Path) -> None:
    files = {"kitchen.py": TOOLS, "web.py": code, "settings.py": SETTINGS}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    port = free_port()
    place = str(port) if server is UVICORN else f"127.0.0.1:{port}"
    paths = os.pathsep.join((str(tmp_path), str(ROOT), str(ROOT / "adapters")))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, "-m", *server, place, "web:web"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as running:
        try:
            wait_for(port)
            with sansmcp_blocking.connect(f"http://127.0.0.1:{port}/tools/mcp") as client:
                result = client.call_tool("brew", {"drink": "tea"})
        finally:
            running.terminate()
    assert result["content"] == [{"type": "text", "text": "a cup of tea"}]
