"""A producer that begins anew all the time: a few batches, and it asks for another id.

So what befalls the first batches of an id, which a partition does not know yet, is met often.
"""

from typing import Final

from simulator.whole.clients.lanes import Identity, SequencedLane
from simulator.whole.clients.producing import FamilyProducer
from simulator.whole.clients.surroundings import WholeSurroundings

FAMILY: Final = "java, well informed"
ACTS: Final = 6
"""So often it has something to send under one id."""


class Newcomer(FamilyProducer):
    def __init__(self, world: WholeSurroundings, address: int) -> None:
        super().__init__(world, address, FAMILY)
        self._acts = 0

    def _act(self) -> None:
        lanes = [lane for lane in self._lanes if isinstance(lane, SequencedLane)]
        if not all(lane.identity.known and lane.identity is self._identity for lane in lanes):
            self._send_all()
        elif self._acts < ACTS:
            self._acts += 1
            super()._act()
        else:
            if all(lane.idle for lane in lanes):
                self._acts = 0
                self._identity = Identity()
            self._send_all()
