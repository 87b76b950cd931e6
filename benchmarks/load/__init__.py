"""Load generators, each in a process of its own: jobs, histograms, samples, usage of processes."""
