"""The program of the page about logs, traces and metrics runs."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import Any

from .documents import DOCS, blocks

PAGE = DOCS / "observability.md"


def test_the_program_runs() -> None:
    names: dict[str, Any] = {"__name__": "observability"}
    exec(compile("\n".join(blocks(PAGE, "python")), PAGE, "exec"), names)
    said = io.StringIO()
    names["shown"].setStream(said)
    log = logging.getLogger("weather")
    try:
        result = asyncio.run(asyncio.wait_for(names["main"](), 30))
    finally:
        for handler in tuple(log.handlers):
            log.removeHandler(handler)
    assert result["content"][0]["text"] == "12 °C"
    level, method, _, text = said.getvalue().splitlines()[0].split(" ", 3)
    assert (level, method, text) == ("WARNING", "tools/call", "the sensor of Oslo is old")
    retries = names["Retries"]()
    retries.event_pulled(None)
    assert retries.seen == []
