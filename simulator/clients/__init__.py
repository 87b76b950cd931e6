"""The users of a world: producers, readers, members, operators, and what each may conclude."""
