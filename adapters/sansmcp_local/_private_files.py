"""Whether a folder and its files belong to the user of the process, and to that user only.

On Windows, access lists say who can use a file. They are not read here: what is private has to be
in the folder of its user, which Windows keeps from other users.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

if sys.platform != "win32":
    import grp
    import pwd


if sys.platform == "win32":

    def check_private_folder(path: str, owner: str, advice: str) -> None:
        """Raise PermissionError for a folder outside the folder of the user.

        ``owner`` names what is in it; ``advice`` is for other systems.
        """
        home, folder = Path.home().resolve(), Path(path).resolve()
        if not folder.is_relative_to(home):
            raise PermissionError(
                errno.EPERM,
                f"The folder of {owner} is outside the folder of its user, and others may be able "
                f"to use it; put {owner} under {home}",
                path,
            )

    def check_private_file(path: str, status: os.stat_result, file: str) -> None:
        """Raise PermissionError for what is no plain file; ``file`` names it."""
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, f"{file} is no regular file", path)

else:

    def check_private_folder(path: str, owner: str, advice: str) -> None:
        """Raise PermissionError for a folder where others could put files, or replace them.

        The sticky bit only keeps others from removing files.

        Args:
            path: the folder.
            owner: names what is in it.
            advice: what to do about it.
        """
        status = os.stat(path)
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid not in (os.geteuid(), 0):
            problem = f"belongs to the user {status.st_uid}, and this process is {os.geteuid()}"
        elif mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_alone_in(status.st_gid)):
            problem = f"can be written by others (mode {mode:04o}), who could put files there"
        else:
            return
        raise PermissionError(errno.EPERM, f"The folder of {owner} {problem}; {advice}", path)

    def _is_alone_in(group: int) -> bool:
        """Return True for the group that many systems give to each user alone."""
        try:
            user, members = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        except KeyError:
            return False
        same = user.pw_gid == group and user.pw_name == members.gr_name
        return same and set(members.gr_mem) <= {user.pw_name}

    def check_private_file(path: str, status: os.stat_result, file: str) -> None:
        """Raise PermissionError for what is no plain file, or can be used by others.

        ``status`` is that of the path, or of the open file; ``file`` names it.
        """
        if stat.S_ISLNK(status.st_mode):
            problem = "is a symbolic link; give the path of the file itself"
        elif not stat.S_ISREG(status.st_mode):
            problem = "is no regular file"
        elif status.st_uid != os.geteuid():
            problem = f"belongs to the user {status.st_uid}, and this process is {os.geteuid()}"
        elif status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            mode = stat.S_IMODE(status.st_mode)
            problem = f"can be used by others (mode {mode:04o}); run: chmod 600 {path}"
        else:
            return
        raise PermissionError(errno.EPERM, f"{file} {problem}", path)
