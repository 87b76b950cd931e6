"""`evenkeel cheat`: one page with the commands for common tasks."""

from typing import Any, Final

PAGE: Final = """\
A CLUSTER ON THIS MACHINE
  evenkeel up -n 3                        run three nodes in ./data until Ctrl-C
  evenkeel status                         nodes, Paxos groups, masters, lag
  evenkeel wait                           until all nodes are ready
  evenkeel demo                           two minutes with real processes

ONE NODE AS A SERVICE
  evenkeel config                         every setting, in the form of a file
  evenkeel node start --config node.toml  run it in the foreground
  evenkeel generate systemd               a unit for one node
  evenkeel generate systemd --template    a unit for several nodes a machine
  evenkeel generate compose --to bus      three nodes in containers

TOPICS AND RECORDS
  evenkeel topic create orders --partitions 12
  evenkeel topic list
  evenkeel topic describe orders
  evenkeel topic produce orders           one record for each line of its input
  evenkeel topic consume orders           what is there; --follow goes on

CONSUMER GROUPS
  evenkeel group list
  evenkeel group describe readers         members, offsets, lag

MASTERS
  evenkeel balance show                   what the balancer would do, and why
  evenkeel balance pause                  ... and resume
  evenkeel balance drain 2                give all masters of node 2 away

NODES
  evenkeel node list                      what each has, and what is to move
  evenkeel node add                       one more node, which gets its share
  evenkeel node remove 4                  move everything away, then stop it
  evenkeel node replace 3                 the same node with an empty disk
  evenkeel rolling-restart                every node in turn, without a gap
  evenkeel kill 2                         a crash, as an exercise
  evenkeel restart 2                      ... and back

DISKS
  evenkeel data usage                     what nodes hold and will need
  evenkeel data verify data/node-1        every record of a stopped node

Every command takes --help. See docs/operations.md and docs/client.md.
"""


def run(_options: Any) -> int:  # noqa: ANN401 (argparse's)
    print(PAGE, end="")
    return 0
