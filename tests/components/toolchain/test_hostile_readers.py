"""What clang reads of a plan and of a policy, under sanitizers (fuzz_readers.cpp).

MLGO_ATTACK_ROUNDS=50 python -m pytest -m attack tests/components/toolchain/test_hostile_readers.py -s
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.inline_plan import Choice, PlannedModule, add_choices, write_plan
from tests.attack.mutations import ROUNDS, SEED

pytestmark = [pytest.mark.toolchain, pytest.mark.attack]

CPP = Path("components/toolchain/cpp").resolve()
TFLITE = [CPP / "tflite" / name for name in ("TFLitePolicy.cpp", "Model.cpp", "Operators.cpp")]
FLAGS = [
    *(
        "-std=c++17",
        "-fno-rtti",
        "-fno-exceptions",
        "-DMLGO_TFLITE",
        "-Wno-deprecated-declarations",
        "-Wno-dangling-else",
    ),
    *("-g1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize=vptr,function", "-fno-sanitize-recover=undefined"),
    # What the readers do not use, the advisors, is not linked.
    *("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections", "-fuse-ld=lld"),
]
RUNS = {"P": 10_000, "F": 5000, "C": 5000, "D": 5000, "O": 5000, "M": 500}
"""Kind of input, as in fuzz_readers.cpp -> number of inputs in a round."""
DECISIONS = ForcedDecisions.of({("f", "g", 0): 1, ("f", "g", 2): 0, ("main", "f", 0): 1, ("g", "", 0): 1})
MODEL = Path(__file__).parent / "ml_compiler_opt/inlining/saved_policy/model.tflite"
DESCRIPTION = {
    "num_actions": 2,
    "features": [{"name": "callee_users", "type": "int64_t", "shape": [1]}],
    "trained_ranges": {"callee_users": [0, 9]},
    "unwind_tables": True,
}
OUTPUTS = [
    {"logging_name": name, "tensor_spec": {"name": "a", "port": 0, "type": kind, "shape": shape}}
    for name, kind, shape in (("inlining_decision", "int64_t", [1]), ("logits", "float", [1, 2]))
]


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("fuzzer") / "fuzzer"
    prefix = Path(subprocess.check_output(["llvm-config-19", "--prefix"], text=True).strip())
    places: list[str | Path] = [f"-I{CPP}", "-isystem", prefix / "include", f"-L{prefix / 'lib'}", "-lLLVM-19"]
    command: list[str | Path] = [
        "clang++-19",
        *FLAGS,
        Path(__file__).with_name("fuzz_readers.cpp"),
        *TFLITE,
        *places,
        "-o",
        program,
    ]
    subprocess.run(command, check=True)
    return program


def read(fuzzer: Path, *arguments: str | Path) -> dict[str, int]:
    """Run the fuzzer; return how many inputs of each kind were read, not refused."""
    limits = ("-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=256", "-print_final_stats=1")
    directory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(fuzzer.parent)
    done = subprocess.run(
        [fuzzer, *limits, f"-artifact_prefix={fuzzer.parent}/", *arguments],
        env={**os.environ, "TMPDIR": directory},
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stderr[-6000:]
    print(done.stderr[-400:])
    (accepted,) = re.findall("^accepted:(.*)", done.stderr, re.MULTILINE)
    words = accepted.split()
    return {kind: int(number) for kind, number in zip(words[::2], words[1::2], strict=True)}


def without_checksums(plan: bytes) -> bytes:
    """Return a plan with zeros for checksums, which the fuzzer takes for right."""
    line, _, rest = plan.partition(b"\n")
    modules = json.loads(line)["modules"]
    index = np.frombuffer(rest[: 40 * modules], "<u8").reshape(-1, 5).copy()
    index[:, 4] = 0
    line = re.sub(rb'"(crc|choices)": \d+', rb'"\1": 0', line).ljust(len(line))
    return line + b"\n" + index.tobytes() + rest[40 * modules :]


def write_inputs(directory: Path, kind: str) -> list[Path]:
    """Write valid inputs of a kind of fuzz_readers.cpp and return their paths."""
    plan = directory / "plan"
    modules = [PlannedModule(name, DECISIONS) for name in ("a/a.c", "c/a.c", "program", "program")]
    write_plan(plan, modules, 19)
    plans = [without_checksums(plan.read_bytes())]
    choices = [Choice(digit * 32, variant, "a.c") for digit, variant in (("e", "plan"), ("f", "policy+outline"))]
    add_choices(plan, choices, plan)
    plans.append(without_checksums(plan.read_bytes()))
    plan.unlink()
    contents = {
        "P": plans,
        "F": [DECISIONS.sorted().content("inlining")],
        "C": [b'{"digest": "f", "variant": "policy+outline", "name": "a"}\n' * 2],
        "D": [json.dumps(DESCRIPTION).encode()],
        "O": [json.dumps(OUTPUTS).encode()],
        "M": [MODEL.read_bytes()],
    }[kind]
    paths = [directory / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(kind.encode() + content)
    return paths


@pytest.mark.parametrize(("kind", "runs"), RUNS.items())
def test_mutated_input_is_an_error_or_read(fuzzer: Path, tmp_path: Path, kind: str, runs: int) -> None:
    inputs = write_inputs(tmp_path, kind)
    assert read(fuzzer, *inputs)[kind] >= len(inputs)
    accepted = read(fuzzer, f"-runs={runs * ROUNDS}", f"-seed={SEED}", "-len_control=0", "-max_len=100000", tmp_path)
    assert 0 < accepted[kind] < runs * ROUNDS


def plan_with_shared_decisions(path: Path) -> bytes:
    """Return a plan of 1 MB with 20,000 entries for one module, which all have the same decisions."""
    many = ForcedDecisions.of({("f", f"g{number}", 0): 1 for number in range(8000)})
    write_plan(path, [PlannedModule("a/a.c", many)], 19)
    line, _, rest = without_checksums(path.read_bytes()).partition(b"\n")
    line = line.rstrip().replace(b'"modules": 1', b'"modules": 20000')
    entry = np.frombuffer(rest[:40], "<u8").copy()
    entry[2] = len(line) + 1 + 40 * 20_000
    return line + b"\n" + entry.tobytes() * 20_000 + rest[40:]


def test_input_that_exhausts_the_stack_memory_or_time_is_an_error(fuzzer: Path, tmp_path: Path) -> None:
    (tmp_path / "plan").write_bytes(b"P" + plan_with_shared_decisions(tmp_path / "plan"))
    (tmp_path / "choices").write_bytes(b"C" + b"[" * 200_000)
    (tmp_path / "description").write_bytes(b"D" + b'{"a":' * 200_000)
    (tmp_path / "outputs").write_bytes(b"O" + b"[" * 200_000)
    (tmp_path / "actions").write_text("D" + json.dumps({**DESCRIPTION, "num_actions": 1 << 62}))
    (tmp_path / "decisions").write_text("O" + json.dumps(OUTPUTS).replace("[1]", f"[{1 << 30}]"))
    assert not any(read(fuzzer, *tmp_path.iterdir()).values())
