"""What every adapter needs of the machine it runs on, and no event loop has to do with.

The real standard input and output (:class:`StandardStreams`), the process group of a server that
was started (:func:`signal_group`), and the file by which processes find a server
(:class:`StateFile`).
"""

from ._processes import signal_group
from ._state_file import State, StateFile, read_state
from ._streams import StandardStreams

__all__ = [
    "StandardStreams",
    "State",
    "StateFile",
    "read_state",
    "signal_group",
]
