"""HTTP/2 on the bench; ``h2`` is optional."""

from __future__ import annotations

import pytest

pytest.importorskip("h2")
