"""What a node asks of the operating system before it begins."""

import resource

from runtime.journal import Journal


def raise_descriptor_limit(wanted: int, journal: Journal) -> None:
    """A shell's usual 1024 are fewer than the clients this node lets in, and the log needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY and hard < wanted:
            journal.warning("few file descriptors: raise ulimit -n", hard=hard, wanted=wanted)
            wanted = hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
