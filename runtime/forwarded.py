"""What another node forwarded, looked at before it is proposed: an entry is for ever.

A chosen command is applied by every replica and again at every restart, and a state machine that
meets one it cannot apply must not go on. So a command that comes over a link is checked as one of
a client is, down to the batch's CRC: TCP's checksum is 16 bits.
"""

import attrs

from broker.commands import CommandError, CommandKind, parse, parse_delete_records
from broker.intake import COMMAND_BYTES_MAX, Pending
from coordinator import commands as coordinator_commands
from coordinator.codec import CommandError as CoordinatorCommandError
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId
from wire.batch import BatchError, produced_batch


@attrs.define(eq=False)
class ForwardOut:
    """A command of a client of ours that another node has been asked to carry out."""

    to: NodeId
    pending: Pending
    since_boot_ns: int


def problem(group: GroupId, data: memoryview) -> str:
    """Why these bytes are not one command for this group, or "" if they are."""
    if len(data) > COMMAND_BYTES_MAX:
        return f"{len(data)} bytes, at most {COMMAND_BYTES_MAX}"
    try:
        commands = list(parse((data,)))
        if len(commands) != 1:
            return f"{len(commands)} commands instead of one"
        kind, body = commands[0].kind, commands[0].body
        if kind == CommandKind.RECORDS:
            produced_batch(body, log_time=True)
        elif kind == CommandKind.CONSUMER_GROUP:
            coordinator_commands.decode(body)
        elif kind == CommandKind.DELETE_RECORDS:
            parse_delete_records(body)
        elif kind != CommandKind.REGISTRY or group != REGISTRY_GROUP:  # it refuses what it cannot
            return f"no command of kind {kind} belongs there"
    except (CommandError, BatchError, CoordinatorCommandError) as error:
        return str(error)
    return ""
