"""Checks of a Kubernetes cluster before a run needs it."""
