"""Every input of the corpus, through its target; and what finds further ones."""

from __future__ import annotations

import pytest

from .inputs import CORPUS, corpus_of, in_parts, joined, mutated
from .mutations import Mutator
from .shrinking import failure_of, shrunk
from .targets import TARGETS


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus(target: str) -> None:
    """With another seed, too."""
    corpus = corpus_of(target)
    assert corpus != []
    for data in corpus:
        TARGETS[target](data)
        TARGETS[target](b"\x12\x35" + data[2:])


def test_the_corpus_is_that_of_the_targets_and_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.glob("*/*")) < 140_000


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_inputs(target: str) -> None:
    corpus = corpus_of(target)
    random = Mutator(0)
    for _ in range(20):
        TARGETS[target](mutated(random.choice(corpus), random, corpus))


def test_an_input_is_taken_apart_and_put_together() -> None:
    assert in_parts(joined(515, b"a", b"", b"b")) == (515, [b"a", b"", b"b"])
    assert in_parts(b"") == (0, [b""])


def test_what_fails_is_made_small() -> None:
    def fails(data: bytes) -> None:
        if b"x" in data and b"yy" in data:
            raise ValueError(data)
        data.decode("ascii")

    assert shrunk(fails, b"\0\0some x and \xffyy more") == b"\0\0xyy"
    assert failure_of(fails, b"x") is None
