"""The documentation site in a real browser, as wide as a phone: none of its pages is wider."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ..browser.server import HOST
from ..browser.test_pages import PATIENCE, browser

WIDTH = 390
"""Pixels of a usual phone."""

MEASURE = """<!doctype html><title>widths</title><body><script>
// Pages are laid out without their scripts, in a fraction of the time; the header needs them.
async function measure(page) {
  const frame = document.createElement("iframe");
  frame.sandbox = "allow-same-origin";
  frame.style = "width: WIDTHpx; height: 800px; border: 0";
  frame.src = page;
  const loaded = new Promise((done) => (frame.onload = done));
  document.body.append(frame);
  await loaded;
  for (const header of frame.contentDocument.querySelectorAll(".md-header")) header.remove();
  const width = frame.contentDocument.scrollingElement.scrollWidth;
  frame.remove();
  await fetch("/measured", { method: "POST", body: JSON.stringify([page, width]) });
}
(async () => {
  for (const page of PAGES) await measure(page);
})();
</script>"""

WIDE = "<!doctype html><title>wide</title><meta charset=utf-8><pre>" + "wide " * 100 + "</pre>"


@contextmanager
def measuring(
    site: Path, pages: list[str]
) -> Generator[tuple[str, queue.SimpleQueue[tuple[str, int]]], None, None]:
    """Serve a site and a page that measures it: the URL of that page, and where results come."""
    results: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    text = MEASURE.replace("WIDTH", str(WIDTH)).replace("PAGES", json.dumps(pages))

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/measure":
                self._answer(text.encode())
            else:
                super().do_GET()

        def do_POST(self) -> None:
            results.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer((HOST, 0), partial(Handler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/measure", results
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def wide_pages(site: Path) -> list[str]:
    """Return the pages of a site that are wider than a phone."""
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    with measuring(site, pages) as (url, results), browser(url):
        measured = dict(results.get(timeout=PATIENCE) for _ in pages)
    assert sorted(measured) == pages
    return [page for page, width in measured.items() if width > WIDTH]


def test_no_page_is_wider_than_a_phone(site: Path) -> None:
    assert wide_pages(site) == []


def test_a_page_that_is_wider_is_found(tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text(WIDE, encoding="utf-8")
    (tmp_path / "narrow.html").write_text(WIDE.replace("wide " * 100, ""), encoding="utf-8")
    assert wide_pages(tmp_path) == ["wide.html"]
