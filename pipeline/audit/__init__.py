"""The history checker's rules on Spark, for histories that no single machine holds."""
