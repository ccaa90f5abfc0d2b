"""Runs a step for Kubeflow Pipelines: what KFP wants to be told is told here, so that steps need not know KFP.

`declare.py` alone imports kfp, for the `component.py` files; nothing that runs in a container does.
"""
