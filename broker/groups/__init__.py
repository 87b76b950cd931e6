"""The live halves of group coordinators on this node, and asking consumers for their progress."""
