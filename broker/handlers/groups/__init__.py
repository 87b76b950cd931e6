"""Consumer groups: their coordinators, members, offsets, and what an operator asks about them."""
