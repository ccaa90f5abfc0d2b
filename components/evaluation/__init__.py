"""Evaluation of a policy on code that it was not trained on.

The step compiles the held-out modules of a corpus with LLVM's heuristic, with the warmstart policy and with the trained
policy, and compares the values of the problem's objective (`core/objectives`):

- size: text of each module, with the policy embedded in a release clang, and a sweep of ``-inline-threshold``;
- score: LLVM's score of each function, which only a training clang logs.

It builds whole projects twice and compares their linked binaries and the instructions that programs execute. It writes:

- ``report.csv``: the four columns of ml-compiler-opt's demos, a row for each module or function;
- ``metrics.json``: all figures and the verdict, see ``metrics_types.py``;
- ``measurements.json``: the values of each case, for comparisons of evaluations;
- ``model-card.json``, ``model-card.md``: the policy, its training and its results;
- ``report.html``: one self-contained page, verdict first.
"""
