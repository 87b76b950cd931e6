"""`evenkeel cheat`: one page with the commands for common tasks."""

from typing import Any, Final

PAGE: Final = """\
A CLUSTER ON THIS MACHINE
  evenkeel up -n 3                        run three nodes in ./data until Ctrl-C
  evenkeel status                         nodes, Paxos groups, masters, lag
  evenkeel wait                           until all nodes are ready
  evenkeel demo                           two minutes with real processes

WHICH CLUSTER
  evenkeel context add prod --bootstrap bus-1:9092 --http 127.0.0.1:18092
  evenkeel topic list --context prod      on every command
  evenkeel context show                   which one is meant here, and why
  evenkeel profile add prod --bootstrap bus-1:9094 --user me --ca ca.crt

WHO MAY DO WHAT
  evenkeel user add alice                 asks for a password; passwd, delete
  evenkeel acl add --allow alice --operation read --topic orders
  evenkeel quota set --user alice produce=10MB/s consume=20MB/s
  evenkeel cert client alice              a certificate, instead of a password

WHEN SOMETHING IS WRONG
  evenkeel health                         for scripts: 0 healthy, 4 degraded
  evenkeel doctor                         each problem, and its cure
  evenkeel debug bundle                   one file for others, without secrets

MACHINES OF THEIR OWN
  evenkeel init --nodes a:10.0.0.1,b:10.0.0.2,c:10.0.0.3
  evenkeel config check --file node.toml  as the node would
  evenkeel config show --origin           every setting, and who set it

SEVERAL NODES ON A MACHINE
  evenkeel init --nodes a:10.0.0.1,b:10.0.0.2,c:10.0.0.3 --processes 2
  evenkeel machine show                   what follows from machine.toml
  evenkeel machine start                  run its nodes; status, stop
  evenkeel machine upgrade                restart them, without a gap
  evenkeel machine list                   all machines of the cluster
  evenkeel machine drain a                give all of its masters away

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
  evenkeel topic consume orders --last 10 --format '%T %k %v\\n'
  evenkeel topic settings orders retention.ms=86400000
  evenkeel topic partitions orders 24
  evenkeel topic trim orders --before 2026-01-31
  evenkeel topic export orders --to DIR --groups
  evenkeel topic import --from DIR --as orders-again

CONSUMER GROUPS
  evenkeel group list
  evenkeel group describe readers         members, offsets, lag

MASTERS
  evenkeel balance show                   what the balancer would do, and why
  evenkeel balance stop                   move nothing; then: continue
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
