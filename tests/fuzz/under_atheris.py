"""One target under atheris: ``python -m tests.fuzz.under_atheris TARGET [OPTION OR FOLDER]...``.

The options are those of libFuzzer. Half of the mutations are ours, which know what messages look
like, the others its own.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .inputs import mutated
from .mutations import Mutator


def main() -> None:
    """Run until libFuzzer ends the process."""
    atheris: Any = importlib.import_module("atheris")
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=["sansmcp", "sansmcp_stores"]):
        from .inputs import corpus_of
        from .targets import TARGETS

        target, corpus = TARGETS[name], corpus_of(name)
        for each in corpus:  # much is imported when it is first used
            target(each)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Mutator(seed)
        if random.random() < 0.5:
            return mutated(data, random, corpus)[:max_size]
        changed: bytes = atheris.Mutate(data, max_size)
        return changed

    atheris.Setup([sys.argv[0], *options], target, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
