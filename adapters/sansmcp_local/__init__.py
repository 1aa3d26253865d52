"""What every adapter needs of the machine it runs on, and no event loop has to do with.

The real standard input and output (:class:`StandardStreams`), the process group of a server that
was started (:func:`signal_group`), the file by which processes find a server
(:class:`StateFile`), where a server listens (:func:`listen`), and when Ctrl-C interrupts those who
block (:func:`undisturbed`).
"""

from ._interrupts import interrupts_allowed, undisturbed
from ._listening import listen
from ._processes import signal_group
from ._state_file import State, StateFile, read_state
from ._streams import StandardStreams

__all__ = [
    "StandardStreams",
    "State",
    "StateFile",
    "interrupts_allowed",
    "listen",
    "read_state",
    "signal_group",
    "undisturbed",
]
