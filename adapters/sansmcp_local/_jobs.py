"""Job objects of Windows: what a process has started ends with it. For Windows only."""

from __future__ import annotations

import ctypes
import sys
from ctypes import wintypes

if sys.platform == "win32":
    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.CreateJobObjectW.restype = wintypes.HANDLE
    _kernel32.OpenProcess.restype = wintypes.HANDLE
    _ntdll = ctypes.WinDLL("ntdll")

    _EXTENDED_LIMITS = 9  # JobObjectExtendedLimitInformation
    _KILL_ON_CLOSE = 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    _RIGHTS = 0x0901  # PROCESS_TERMINATE | PROCESS_SET_QUOTA | PROCESS_SUSPEND_RESUME

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
        """A process that was started suspended, and all that it starts.

        They end with :meth:`end`, and when this process ends, however it does: Windows closes the
        job then.
        """

        def __init__(self, pid: int) -> None:
            """Put a process into a new job, and let it run.

            If the system allows no job, as in a job that admits none in it, the process alone ends
            with :meth:`end`. Raises OSError if there is no such process.
            """
            self._job = wintypes.HANDLE(_kernel32.CreateJobObjectW(None, None))
            self._process = wintypes.HANDLE(_kernel32.OpenProcess(_RIGHTS, 0, pid))
            if not self._process:
                raise ctypes.WinError(ctypes.get_last_error())
            limits = _Limits(flags=_KILL_ON_CLOSE)
            _kernel32.SetInformationJobObject(
                self._job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
            )
            _kernel32.AssignProcessToJobObject(self._job, self._process)
            _ntdll.NtResumeProcess(self._process)

        def end(self) -> None:
            """End all processes of the job. Without effect if they have ended."""
            _kernel32.TerminateJobObject(self._job, 1)
            _kernel32.TerminateProcess(self._process, 1)

        def __del__(self) -> None:
            """Close the job, which ends what is left of it."""
            for handle in (self._job, self._process):
                _kernel32.CloseHandle(handle)
