"""A client of one group: a window of sequences, retried until acknowledged, and reads."""

from paxos.ids import MS, GroupId
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between, dice
from simulator.node.command_node import Read, Write, Written

CLIENT_ADDRESS = 100
"""Clients' addresses on the simulated network begin here."""


class Client:
    def __init__(self, world: Surroundings, address: int, group: GroupId) -> None:
        self._world, self.address, self._group = world, address, group
        self._chance = dice(world.options.seed, "client", address)
        self._window = world.options.client_window
        self.name = f"client {address}"
        self.progress = 0
        self.done = 0
        """Every sequence up to here is acknowledged."""
        self._acknowledged: set[int] = set()
        self._reads = 0
        self._target = self._anybody()
        self._next = 1
        self.stopped = False
        self._heard = True
        """Whether any answer came since the last round: a client without answers asks the next
        node. It goes round, so that finding a node that is up needs no luck (seed 267)."""
        self._turn = self._target

    def start(self) -> None:
        self._world.loop.after(between(self._chance, 0, 200 * MS), self._pump)

    def _anybody(self) -> int:
        return self._chance.choice(self._world.addresses)

    def _pump(self) -> None:
        """Send again whatever is not acknowledged, fill the window, read."""
        if self.stopped:
            return
        chance, think = self._chance, self._world.options.client_think_ns
        for seq in range(self.done + 1, self._next):
            if seq not in self._acknowledged:
                self._write(seq)
        self._fill()
        if chance.random() < 0.5:
            self._reads += 1
            floor = self._world.acknowledged.floor(self._group)
            read = Read(self._group, self._reads, floor)
            self._world.network.send(self.address, self._target, read)
        if not self._heard:
            self._turn = (self._turn + 1) % len(self._world.addresses)
            self._target = self._world.addresses[self._turn]
        elif chance.random() < 0.05:
            self._target = self._anybody()
        self._heard = False
        self._world.loop.after(between(chance, think, 3 * think), self._pump)

    def _fill(self) -> None:
        while self._next <= self.done + self._window:
            self._write(self._next)
            self._next += 1

    def _write(self, seq: int) -> None:
        write = Write(self._group, seq, self._chance.random() < 0.1)
        self._world.network.send(self.address, self._target, write)

    def deliver(self, source: int, what: object) -> None:
        assert isinstance(what, Written)
        self._heard = True
        if what.slot:
            self.progress += 1
            self._acknowledged.add(what.seq)
            while self.done + 1 in self._acknowledged:
                self.done += 1
                self._acknowledged.remove(self.done)
            if not self.stopped and self._chance.random() < 0.3:
                self._fill()
        elif what.master is not None and what.master != source:
            self._target = what.master
        elif what.master is None and self._target == source:
            self._target = self._anybody()
