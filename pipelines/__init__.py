"""The KFP pipeline, and the commands that run and submit it."""
