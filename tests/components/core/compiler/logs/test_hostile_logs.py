"""Files of a compiler that its input took over: each is an error of the module, whatever is in it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from components.core.compiler.development_mode.interactive import InteractiveError, compile_interactively
from components.core.compiler.logs.callsites import read_callsites
from components.core.compiler.logs.function_scores import read_function_scores
from components.core.compiler.logs.training_log import LogError, read_log
from components.platform.processes import supervision
from components.platform.processes.reaper import scratch_directory

DEEP = "[" * 100_000
READERS = {
    "log": (read_log, [json.dumps({"features": [{"name": "a", "port": 0, "type": "int64_t", "shape": [2**31 - 1]}]})]),
    "callsites": (read_callsites, ['{"version": 1, "decisions": 1e999, "functions": 1}']),
    "scores": (read_function_scores, ['{"version": 1, "functions": 1e999}']),
}


@pytest.mark.parametrize("name", READERS)
def test_headers_that_python_cannot_hold_are_errors_of_the_file(name: str, tmp_path: Path) -> None:
    reader, headers = READERS[name]
    for header in [DEEP, *headers]:
        (tmp_path / "file").write_text(header + "\n")
        with pytest.raises(LogError):
            reader(tmp_path / "file")


CLANG = """#!{python} -IS
import os, sys, time
base = next(word.split("=", 1)[1] for word in sys.argv if "channel-base=" in word)
questions = os.open(base + ".out", os.O_WRONLY)
{attack}
time.sleep(600)
"""
DEAF = """os.write(questions, b'{"features":[{"name":"a","port":0,"shape":[1],"type":"int64_t"}]}\\n')
for number in range(20_000):
    os.write(questions, b'{"observation":%d}\\n12345678\\n' % number)"""


@pytest.mark.parametrize("attack", [DEAF, "os.write(questions, b'[' * 60_000 + b'\\n')"])
def test_compiler_that_asks_without_reading_answers_or_sends_nonsense_is_ended(attack: str, tmp_path: Path) -> None:
    (tmp_path / "clang").write_text(CLANG.format(python=sys.executable, attack=attack))
    (tmp_path / "clang").chmod(0o755)
    (tmp_path / "scratch").mkdir()
    with pytest.raises(InteractiveError) as raised:
        compile_interactively(tmp_path / "clang", [], "inlining", lambda *_: 1, 60, tmp_path / "scratch")
    assert raised.value.reason == "log"


def test_deep_directories_are_removed() -> None:
    code = "import os\nfor _ in range(1500):\n  os.mkdir('d')\n  os.chdir('d')"
    with scratch_directory("compile-") as scratch:
        command = [sys.executable, "-I", "-S", "-c", code]
        assert supervision.run(command, 60, cwd=scratch, writable=scratch).returncode == 0
    assert not scratch.exists()
