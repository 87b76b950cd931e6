"""What the log says of consumer groups and offsets: commands, their bytes, the store,
checkpoints."""
