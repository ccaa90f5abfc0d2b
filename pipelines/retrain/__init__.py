"""Retraining for continuous integration: check, retrain, promote."""
