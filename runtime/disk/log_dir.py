"""Where the node keeps its log, as the broker tells Kafka's clients (DescribeLogDirs)."""

import shutil

import attrs


@attrs.frozen
class LogDir:
    path: str

    def volume(self) -> tuple[int, int]:
        """Bytes of the file system in all, and those that can still be used.

        Raises:
            OSError: if it cannot be asked.
        """
        usage = shutil.disk_usage(self.path)
        return usage.total, usage.free
