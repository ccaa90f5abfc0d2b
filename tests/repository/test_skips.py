"""Skipped tests are failures in continuous integration; the list of exceptions names tests that exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import allowed_skips, selects

ROOT = Path(__file__).parents[2]
SKIPPED = {
    "mark": "@pytest.mark.skipif(True, reason='why')\ndef test_it(): ...",
    "body": "def test_it():\n    pytest.skip('why')",
    "fixture": "@pytest.fixture\ndef needed():\n    pytest.skip('why')\ndef test_it(needed): ...",
    "file": "pytest.importorskip('no_such_module', reason='why')\ndef test_it(): ...",
}
EXPECTED_FAILURE = "@pytest.mark.xfail(strict=True)\ndef test_it():\n    assert False"


def run(tmp_path: Path, text: str, ci: str, allowed: str = "") -> tuple[int, str]:
    """Run a test file with the plugin; return the exit status and the output."""
    (tmp_path / "test_file.py").write_text(f"import pytest\n{text}\n")
    (tmp_path / "allowed.txt").write_text(allowed)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    program = (
        "import sys, pathlib, pytest, tests.support.skips as skips; skips.ALLOWED = pathlib.Path('allowed.txt'); "
        "sys.exit(pytest.main(['-p', 'tests.support.skips', '-p', 'no:cacheprovider', '-ra', 'test_file.py']))"
    )
    environment = {
        **os.environ,
        "CI": ci,
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("way", SKIPPED)
def test_a_skipped_test_fails_in_ci_only(tmp_path: Path, way: str) -> None:
    status, output = run(tmp_path, SKIPPED[way], ci="true")
    assert status != 0 and "why" in output and "no test may be skipped" in output
    assert run(tmp_path, SKIPPED[way], ci="")[0] in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@pytest.mark.parametrize("entry", ["test_file.py", "test_file.py::test_it"])
def test_listed_test_may_be_skipped_in_ci(tmp_path: Path, entry: str) -> None:
    status, output = run(tmp_path, SKIPPED["body"], ci="true", allowed=f"# comment\n\n{entry}  a reason\n")
    assert status == 0 and "1 skipped" in output
    assert run(tmp_path, SKIPPED["body"], ci="true", allowed="test_file.py::test_i  a reason\n")[0] != 0
    status, output = run(tmp_path, SKIPPED["body"], ci="true", allowed=f"{entry}\n")
    assert status != 0 and "no test id, two spaces and a reason" in output


def test_expected_failures_are_no_skips(tmp_path: Path) -> None:
    assert run(tmp_path, EXPECTED_FAILURE, ci="true")[0] == 0


def test_parameters_are_selected_by_test_file_and_set() -> None:
    test = "tests/test_a.py::test_b[c]"
    for entry in ("tests/test_a.py", "tests/test_a.py::test_b", test):
        assert selects(entry, test)
    for entry in ("tests/test_a", "tests/test_a.py::test_", "tests/test_a.py::test_b[d]", ""):
        assert not selects(entry, test)


def test_the_list_names_tests_that_exist() -> None:
    files = sorted({entry.partition("::")[0] for entry in allowed_skips()})
    assert [file for file in files if not (ROOT / file).is_file()] == []
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "CI": ""}
    done = subprocess.run(
        [*command, "-o", "addopts=--import-mode=importlib"], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    collected = [line for line in done.stdout.splitlines() if "::" in line]
    assert done.returncode == 0 and collected, done.stdout + done.stderr
    gone = [entry for entry in allowed_skips() if not any(selects(entry, test) for test in collected)]
    assert gone == [], "remove these from tests/support/allowed_skips.txt"
