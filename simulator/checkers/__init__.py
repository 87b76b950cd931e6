"""What must hold in every world, each as an object of its own; `protocol.py` first."""
