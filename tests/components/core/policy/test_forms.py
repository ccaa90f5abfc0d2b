"""Forms of a policy are programs: they run confined, and what they do to their process is one error."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.policy import forms
from components.core.policy.forms import run_form
from components.platform.errors import UserError
from components.platform.processes import sandbox
from tests.attack.mutations import ROUNDS, SEED, mutate

COLUMNS = {"cost_estimate": np.arange(5)}
DESCRIPTION = (
    '{"problem": "inlining", "num_actions": 2, "features": '
    '[{"name": "cost_estimate", "dtype": "int64", "type": "int64_t", "shape": [1]}]}'
)
SOURCE = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <signal.h>
#include <sys/socket.h>
__attribute__((constructor)) static void constructed(void) { %s }
const char *mlgo_policy_describe(void) { return DESCRIPTION; }
void mlgo_policy_logits(const void *const *inputs, float *logits) {
  logits[0] = 2.5f;
  logits[1] = (float)*(const int64_t *)inputs[0];
}
"""


@pytest.fixture
def make(tmp_path: Path, clang: Path) -> Callable[[str], Path]:
    """A function that returns a policy directory whose policy.so runs this code when it is loaded."""

    def make_code(code: str, description: str = DESCRIPTION) -> Path:
        directory = tmp_path / "policy"
        directory.mkdir()
        (tmp_path / "policy.c").write_text(SOURCE % code)
        quoted = description.replace('"', '\\"')
        command: list[str | Path] = [clang, "-shared", "-fPIC", f'-DDESCRIPTION="{quoted}"', tmp_path / "policy.c"]
        subprocess.run([*command, "-o", directory / "policy.so"], check=True)
        return directory

    return make_code


def test_native_form_decides(make: Callable[[str], Path]) -> None:
    output = run_form("native", make(""), COLUMNS)
    assert output.decisions.tolist() == [0, 0, 0, 1, 1] and output.description["problem"] == "inlining"
    np.testing.assert_array_equal(output.logits[:, 1], COLUMNS["cost_estimate"])


def test_constructor_writes_nothing_and_opens_no_socket(make: Callable[[str], Path], tmp_path: Path) -> None:
    if sandbox.kind() == "none":
        pytest.skip("nothing confines here")
    touched = tmp_path / "touched"
    code = f'FILE *f = fopen("{touched}", "w"); if (f || socket(AF_INET, SOCK_STREAM, 0) >= 0) abort();'
    assert run_form("native", make(code), COLUMNS).decisions.tolist() == [0, 0, 0, 1, 1]
    assert not touched.exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise(SIGBUS);", r"policy\.so ended the process that ran it by SIGBUS \(Bus error\)"),
        ("abort();", r"policy\.so ended the process that ran it by SIGABRT"),
        ("_exit(0);", r"policy\.so cannot be run"),
        ('fputs("no accelerator\\n", stderr); _exit(7);', r"policy\.so cannot be run: no accelerator"),
    ],
)
def test_end_of_the_process_is_one_error(make: Callable[[str], Path], code: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_form("native", make(code), COLUMNS)


def test_form_that_hangs_is_ended(make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "TIMEOUT_S", 5.0)
    with pytest.raises(UserError, match=r"policy\.so"):
        run_form("native", make("for (;;) pause();"), COLUMNS)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.6])
def test_shared_object_that_is_cut_off_is_an_error(make: Callable[[str], Path], share: float) -> None:
    directory = make("")
    content = (directory / "policy.so").read_bytes()
    (directory / "policy.so").write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=r"policy\.so (ended the process|is not a native policy|cannot be run)"):
        run_form("native", directory, COLUMNS)


@pytest.mark.attack
def test_mutated_shared_object_is_an_error_or_decides(
    make: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox.kind() == "none":
        pytest.skip("nothing confines here")
    monkeypatch.setattr(forms, "TIMEOUT_S", 60.0)
    directory = make("")
    whole = (directory / "policy.so").read_bytes()
    refused = 0
    for number in range(16 * ROUNDS):
        (directory / "policy.so").write_bytes(mutate(whole, random.Random(f"{SEED}/{number}")))
        try:
            assert run_form("native", directory, COLUMNS).decisions.shape == (5,)
        except UserError:
            refused += 1
    assert refused


@pytest.mark.parametrize("number", ["1e999", "4611686018427387904", "-1", "[" * 9000])
def test_shared_object_with_a_wrong_number_of_actions_is_an_error(make: Callable[..., Path], number: str) -> None:
    directory = make("", DESCRIPTION.replace('"num_actions": 2', f'"num_actions": {number}'))
    with pytest.raises(UserError, match=r"policy\.so is not a native policy"):
        run_form("native", directory, COLUMNS)


def test_shared_object_of_another_policy_is_an_error(make: Callable[[str], Path]) -> None:
    with pytest.raises(UserError, match="another policy"):
        run_form("native", make(""), {"callee_users": np.arange(3)})
