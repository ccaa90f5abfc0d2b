"""Evaluation: what a policy does to code that it was not trained on.

The step compiles the held-out modules of a corpus with LLVM's heuristic, with the warmstart policy and with the trained
policy, and judges what comes out by what the problem is about (judges.py):

- size: text of each module, the policy embedded in a release clang, beside a sweep of ``-inline-threshold``;
- score: LLVM's score of each function, which only a training clang logs, beside what whole programs execute.

It writes:

- ``report.csv``: the four columns of the demos, a row a module or a function;
- ``metrics.json``: everything that was measured, see ``metrics.py`` and ``score_metrics.py``;
- ``report.html``: one self-contained page with the verdict first.
"""
