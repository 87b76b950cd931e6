"""One machine of a cluster: as many node processes as it has cores to give, run from one file.
`plan.py` is the file and what follows from it, `supervisor.py` runs the processes.
"""
