"""What a story has to know about single nodes, whichever client it uses."""

import time

from confluent_kafka.admin import AdminClient

WAIT_S = 20.0


def wait_until_known(bootstrap: str, topic: str) -> None:
    """Until every node has heard of the topic: one creates it, and the others follow.

    For clients that do not ask again: acks=0 gets no errors, and kcat ends on one.
    """
    deadline = time.monotonic() + WAIT_S
    for node in bootstrap.split(","):
        while topic not in _topics_of(node):
            assert time.monotonic() < deadline, f"{node} does not hear of {topic}"
            time.sleep(0.02)


def _topics_of(node: str) -> set[str]:
    """A new client knows no node but this one."""
    return set(AdminClient({"bootstrap.servers": node}).list_topics(timeout=WAIT_S).topics)
