"""Who uses a world: producers, readers, members, operators, each with what it may conclude."""
