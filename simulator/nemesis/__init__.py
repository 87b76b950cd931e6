"""What goes wrong: crashes at the worst moment, clocks, disks, networks, false messages."""
