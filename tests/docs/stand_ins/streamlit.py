"""What the page on programs with loops of their own uses of Streamlit."""

from __future__ import annotations

from typing import Any

session_state: dict[str, Any] = {}
written: list[object] = []

write = written.append
