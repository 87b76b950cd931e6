"""What a story has to know of single nodes, whichever client it is about."""

import time

from confluent_kafka.admin import AdminClient

WAIT_S = 20.0


def wait_until_known(bootstrap: str, topic: str) -> None:
    """Until every node has heard of the topic: it is made on one, and the others follow.

    For who does not ask again: acks=0 has no error to answer to, and kcat ends on it.
    """
    deadline = time.monotonic() + WAIT_S
    for node in bootstrap.split(","):
        while topic not in _topics_of(node):
            assert time.monotonic() < deadline, f"{node} does not hear of {topic}"
            time.sleep(0.02)


def _topics_of(node: str) -> set[str]:
    """A client that is new knows no other node to ask than this one."""
    return set(AdminClient({"bootstrap.servers": node}).list_topics(timeout=WAIT_S).topics)
