"""Tests problems whose measure is a score: a compile logs the score of each function and writes no object."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request, read_scores
from components.core.compiler.logs.training_log import LogError, read_log
from components.core.formats.corpus import Corpus
from tests.components.conftest import module_called

PROBLEM = problems.get("regalloc")


def read_reference(path: Path) -> dict[str, list[tuple[dict[str, tuple[float, ...]], float]]]:
    """Return the decisions (values by feature, outcome) by function.

    Reads one value at a time, following the description of the format in LLVM's TrainingLogger.h.
    """
    contexts: dict[str, list[tuple[dict[str, tuple[float, ...]], float]]] = {}
    with open(path, "rb") as stream:
        header = json.loads(stream.readline())
        while line := stream.readline():
            event = json.loads(line)
            if "context" in event:
                decisions = contexts.setdefault(event["context"], [])
                continue
            assert event == {"observation": len(decisions)}
            values = {}
            for spec in header["features"]:
                count = int(np.prod(spec["shape"]))
                form = f"<{count}{'q' if spec['type'] == 'int64_t' else 'f'}"
                values[spec["name"]] = struct.unpack(form, stream.read(struct.calcsize(form)))
            assert stream.read(1) == b"\n"
            assert json.loads(stream.readline()) == {"outcome": len(decisions)}
            (outcome,) = struct.unpack("<f", stream.read(4))
            assert stream.read(1) == b"\n"
            decisions.append((values, outcome))
    return contexts


@pytest.mark.toolchain
def test_real_log_of_several_functions(
    training_toolchain: Path, pressed_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLGO_COMPILE_SANDBOX", "none")  # the file below must outlive the compile
    clang = training_toolchain / "bin" / "clang"
    module = module_called(pressed_corpus, "pressed")
    # The scratch directory is removed after the compile, so an extra flag has the log written to a path that stays.
    log_option = ("-mllvm", f"{PROBLEM.llvm.log_option}={tmp_path / 'log'}")
    Compiler(clang, "regalloc")(
        Request(module, Advisor("default"), extra_flags=("-mllvm", *PROBLEM.llvm.development_options, *log_option))
    )
    reference, log = read_reference(tmp_path / "log"), read_log(tmp_path / "log")
    assert [context.name for context in log.contexts] == list(reference) == ["mix", "calls"]
    for context in log.contexts:
        decisions = reference[context.name]
        assert len(context) == len(decisions) > 5
        assert context.columns["mask"].shape == (len(decisions), 1, 33)
        for name, column in context.columns.items():
            expected = np.array([values[name] for values, _ in decisions], column.dtype)
            np.testing.assert_array_equal(column.reshape(expected.shape), expected, err_msg=name)
        assert context.outcomes is not None
        np.testing.assert_array_equal(context.outcomes.ravel(), [outcome for _, outcome in decisions])
        assert context.outcomes[-1] > 0 and not context.outcomes[:-1].any()
    scores = Compiler(clang, "regalloc")(Request(module, Advisor("log"))).samples[0].scores
    assert scores == {name: decisions[-1][1] for name, decisions in reference.items()}


@pytest.mark.toolchain
def test_compile_with_log_has_scores_and_without_log_a_size(training_toolchain: Path, pressed_corpus: Corpus) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "regalloc")
    module = module_called(pressed_corpus, "pressed")
    (plain,) = compiler(Request(module, Advisor("default"))).samples
    assert plain.text_size_bytes > 0 and plain.scores is None and plain.log is None
    (logged,) = compiler(Request(module, Advisor("log"))).samples
    assert logged.text_size_bytes == 0 and logged.scores is not None and logged.callsites is None
    (none,) = compiler(Request(module_called(pressed_corpus, "leaf"), Advisor("log"))).samples
    assert none.scores == {} and none.log is not None and none.log.decisions == 0
    # The score is LLVM's: a tenfold weight of loads increases it.
    heavier = Request(module, Advisor("log"), extra_flags=("-mllvm", "-regalloc-load-weight=40"))
    scores = compiler(heavier).samples[0].scores
    assert scores is not None and all(scores[name] > 2 * score for name, score in logged.scores.items())


def test_log_without_scores_is_refused(tmp_path: Path) -> None:
    header = {"features": [{"name": "index_to_evict", "port": 0, "type": "int64_t", "shape": [1]}]}
    lines = [json.dumps(header).encode(), b'{"context":"f"}', b'{"observation":0}', bytes(8), b""]
    (tmp_path / "log").write_bytes(b"\n".join(lines))
    with pytest.raises(LogError, match="'f' has"):
        read_scores(tmp_path / "log", read_log(tmp_path / "log"))
