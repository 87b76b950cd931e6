"""Jobs on Spark, each in a folder of its own: `python -m pipeline JOB`. They use the data source,
the balancer's planner and the history checker, and nothing else of the product."""
