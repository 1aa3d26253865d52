"""Mutated frames against the machines of ``stdio-v2``."""

from __future__ import annotations

import pytest

from .inputs import corpus_of, mutated
from .mutations import SEEDS, Mutator
from .targets import TARGETS


@pytest.mark.parametrize("target", ["server_http2", "client_http2"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_frames(target: str, seed: int) -> None:
    """60 connections each, whose frames have up to three mutations."""
    corpus, random = corpus_of(target), Mutator(seed)
    for _ in range(60):
        data = random.choice(corpus)
        for _ in range(random.randrange(4)):
            data = mutated(data, random, corpus)
        try:
            TARGETS[target](data)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {data!r}") from error
