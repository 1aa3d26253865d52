"""Job objects of Windows: what a process has started ends with it. For Windows only."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes

if sys.platform == "win32":
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    for _name in ("SetInformationJobObject", "AssignProcessToJobObject", "TerminateJobObject"):
        getattr(_kernel32, _name).restype = wintypes.BOOL

    _EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
    _KILL_ON_CLOSE = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    _ASSIGN = 0x0101  # PROCESS_TERMINATE | PROCESS_SET_QUOTA

    class _Limits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = (
            ("times", ctypes.c_int64 * 2),
            ("flags", wintypes.DWORD),
            ("sizes", ctypes.c_size_t * 2),
            ("processes", wintypes.DWORD),
            ("affinity", ctypes.c_size_t),
            ("classes", wintypes.DWORD * 2),
            ("io", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        )

    class Job:
        """A process, and all that it starts from now on.

        They end with :meth:`end`, and when this process ends, however it does: Windows closes the
        job then. What the process has started before it is put into the job is not in it; that is
        the time between two calls of the system.
        """

        def __init__(self, pid: int) -> None:
            """Put a process into a new job. Raises OSError, also if the process has ended."""
            self._handle = wintypes.HANDLE(_checked(_kernel32.CreateJobObjectW(None, None)))
            try:
                limits = _Limits(flags=_KILL_ON_CLOSE)
                size = ctypes.sizeof(limits)
                _checked(
                    _kernel32.SetInformationJobObject(
                        self._handle, _EXTENDED_LIMITS, ctypes.byref(limits), size
                    )
                )
                process = wintypes.HANDLE(_checked(_kernel32.OpenProcess(_ASSIGN, 0, pid)))
                try:
                    _checked(_kernel32.AssignProcessToJobObject(self._handle, process))
                finally:
                    _kernel32.CloseHandle(process)
            except OSError:
                _kernel32.CloseHandle(self._handle)
                raise

        def end(self) -> None:
            """End all processes of the job. Without effect if they have ended."""
            _kernel32.TerminateJobObject(self._handle, 1)

        def __del__(self) -> None:
            """Close the job, which ends what is left of it."""
            _kernel32.CloseHandle(self._handle)

    def _checked(result: int | None) -> int:
        if not result:
            raise ctypes.WinError(ctypes.get_last_error())
        return result
