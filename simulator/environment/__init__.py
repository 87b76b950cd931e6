"""What a world is made of before there is a node: time, chance, clocks, network, options, trace."""
