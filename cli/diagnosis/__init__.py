"""What is wrong with a cluster: its status, its health for scripts, each problem with its cure."""
