"""Kafka's semantics on top of Paxos groups. No sockets, no trio, no clock: whatever it needs from
the world it gets through `ports.py`, from the runtime or from the simulator.

Its folders, from top to bottom: handlers; requests; groups, delayed, producers, transfer;
lifecycle; reads; state_machine; proposals.

Read first: `api.py` (frame to handler), `proposals/intake.py`, `state_machine/machine.py`.
"""
