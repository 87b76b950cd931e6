"""What a world has before it has a node: time, chance, clocks, network, options, trace."""
