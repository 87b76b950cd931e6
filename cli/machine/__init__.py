"""`evenkeel machine`: one machine of a cluster, with as many node processes as it has cores."""
