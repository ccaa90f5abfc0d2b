"""The functions that changed most in held-out modules, compiled by the real training clang, and their decisions."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.formats.corpus import Corpus
from components.core.formats.toolchain import load_toolchain
from components.core.objectives import SIZE
from components.evaluation.changed_functions import changed_functions, explain_builds
from components.evaluation.config import EvaluationConfig
from components.evaluation.inputs import heldout_modules
from components.evaluation.measure import measure
from components.evaluation.metrics_types import FunctionChange, FunctionDecision
from components.evaluation.report.changed_functions import decision_lines
from components.evaluation.variants import plan_variants
from components.platform.errors import UserError
from components.platform.workers.factory import make_pool


@pytest.mark.toolchain
def test_largest_changes_have_the_decisions_that_cause_them(
    corpus: Corpus, never: Path, training_toolchain: Path, tmp_path: Path
) -> None:
    """Under a policy that refuses every call, what LLVM inlines appears as functions, because of these refusals."""
    training = load_toolchain(training_toolchain)
    config = EvaluationConfig(corpus.directory, training_toolchain, never, tmp_path / "out", thresholds=())
    variants, modules = plan_variants(SIZE, config, training, None), heldout_modules(corpus)
    with closing(make_pool("local")) as pool:
        measured = measure(pool, config, SIZE, variants, modules, ("unknown",))
        changes = changed_functions(pool, config, measured, modules, variants, training)
    grown = [change for change in changes if change.new > change.old]
    shrunk = [change for change in changes if change.new < change.old]
    assert changes == [*grown, *shrunk] and grown and shrunk
    sizes = [change.new - change.old for change in changes]
    assert sizes == [*sorted(sizes[: len(grown)], reverse=True), *sorted(sizes[len(grown) :])]
    by_name = {module.name: module for module in modules}
    for change in changes[:2]:
        for advisor, expected in ((Advisor("default"), change.old), (Advisor("policy", policy=never), change.new)):
            (sample,) = Compiler(training.clang, "inlining")(Request(by_name[change.binary], advisor, True)).samples
            assert sample.function_sizes.by_name().get(change.symbol, 0) == expected
    explained = [change for change in changes if change.decisions]
    assert explained and all(change in [*grown[:5], *shrunk[:5]] for change in explained)
    for change in explained:
        for decision in change.decisions:
            assert not decision.inlines and change.function in (decision.caller, decision.callee)
            assert decision.function_bytes != change.new and decision.saved_bytes is not None
        assert "not inlined" in decision_lines(change, 200)[0] and "; otherwise " in decision_lines(change, 200)[0]
    assert all("(" in change.function or change.function.isidentifier() for change in changes), "demangled"


@pytest.mark.toolchain
def test_run_explains_the_functions_of_two_builds(
    corpus: Corpus, never: Path, training_toolchain: Path, tmp_path: Path
) -> None:
    for name, target in (("corpus", corpus.directory), ("policy", never), ("training", training_toolchain)):
        (tmp_path / name).symlink_to(target)
    symbol = "_Z5countRKSt6vectorINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaIS5_EE"
    changes = [
        FunctionChange(binary="app", function="count(...)", old=10, new=30, symbol=symbol),
        FunctionChange(binary="app", function="elsewhere()", old=30, new=10, symbol="_Z9elsewherev"),
    ]
    explain_builds(changes, tmp_path)
    assert changes[0].decisions and not changes[1].decisions
    assert all(not decision.inlines and decision.saved_bytes is not None for decision in changes[0].decisions)
    (tmp_path / "training").unlink()
    with pytest.raises(UserError):
        explain_builds(changes, tmp_path)


def test_lines_say_what_would_be_otherwise() -> None:
    inside = FunctionDecision(caller="f()", callee="g()", inlines=True, saved_bytes=-12, function_bytes=100)
    about = FunctionDecision(caller="h()", callee="f()", calls=3, inlines=False, saved_bytes=40, function_bytes=0)
    change = FunctionChange(binary="m.o", function="f()", old=90, new=150, decisions=[inside, about], more_decisions=1)
    assert decision_lines(change, 80) == [
        "g() inlined here; otherwise 100 bytes, module -12",
        "not inlined in 3 calls; otherwise gone, module +40",
        "and 1 more decision unlike LLVM's",
    ]
    change.decisions, change.more_decisions = [], 2
    assert decision_lines(change, 80) == ["none of the measured decisions alone; 2 decisions unlike LLVM's"]
    change.more_decisions = 0
    assert decision_lines(change, 80) == []
    long = FunctionDecision(caller="f()", callee=f"table<{'Row, ' * 30}int>::sum()", inlines=True)
    change.decisions = [long]
    (line,) = decision_lines(change, 60)
    assert line == "table<…>::sum() inlined here"
