"""Evaluation: what a policy does to the size of code that it was not trained on.

The step compiles the held-out modules of a corpus with the default heuristic, with the warmstart policy, with the
trained policy embedded in a release clang, and with a sweep of ``-inline-threshold``, and writes:

- ``report.csv``: the four columns of the inlining demo, a row a module;
- ``metrics.json``: everything that was measured, see ``metrics.py``;
- ``report.html``: one self-contained page with the verdict first.
"""
