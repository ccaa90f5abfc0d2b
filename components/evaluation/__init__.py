"""Evaluation: what a policy does to code that it was not trained on.

The step compiles the held-out modules of a corpus with LLVM's heuristic, with the warmstart policy and with the trained
policy, and compares their values of the problem's objective (`core/objectives`):

- size: text of each module, the policy embedded in a release clang, next to a sweep of ``-inline-threshold``;
- score: LLVM's score of each function, which only a training clang logs.

Whole projects are built twice: what they link to, and what their programs execute. The step writes:

- ``report.csv``: the four columns of ml-compiler-opt's demos, a row for each module or function;
- ``metrics.json``: everything that was measured, see ``metrics.py``;
- ``measurements.json``: the values behind it, for comparisons of evaluations;
- ``model-card.json``, ``model-card.md``: what the policy is and what made it;
- ``report.html``: one self-contained page with the verdict first.
"""
