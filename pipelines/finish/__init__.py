"""The last step of a pipeline, its exit handler: tells how the run ended."""
