"""Runs a step under Kubeflow Pipelines and reports its outputs to KFP, so that steps need not know KFP.

Only `declare.py` imports kfp, for the `component.py` files; nothing that runs in a container does.
"""
