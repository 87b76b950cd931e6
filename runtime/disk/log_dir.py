"""The directory of the node's log, which the broker reports to clients (DescribeLogDirs)."""

import shutil

import attrs


@attrs.frozen
class LogDir:
    path: str

    def volume(self) -> tuple[int, int]:
        """The size of the file system and its usable free space, in bytes.

        Raises:
            OSError: they cannot be determined.
        """
        usage = shutil.disk_usage(self.path)
        return usage.total, usage.free
