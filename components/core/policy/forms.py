"""Runs a form of a policy in a confined child: policy.so, the SavedModel and the TensorFlow Lite model are programs.

Policies come from elsewhere, too. The shared object's constructors run when it is loaded, a SavedModel's operations can
read and write files, and a damaged file can end the process that maps it. The child can write only to a scratch
directory and has no network (components/platform/processes/sandbox.py); its end by a signal is an error like any other.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import SAVED_MODEL, TFLITE_MODEL
from components.core.policy.dense import NPZ_ERRORS, read_dense, write_npz
from components.core.policy.generated.native_policy import NativePolicy
from components.core.policy.generated.shared_object import SHARED_OBJECT
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.processes.python_module import module_command
from components.platform.storage.input_files import open_regular, parse_json, read_bytes

Form = Literal["native", "saved_model", "tflite"]
FORM_FILES: Mapping[Form, str] = {"native": SHARED_OBJECT, "saved_model": SAVED_MODEL, "tflite": TFLITE_MODEL}
TIMEOUT_S = 600.0
_INPUT, _OUTPUT, _ERROR = "columns.npz", "decisions.npz", "error.json"
_REMEDY = "export the policy again, or get a complete copy"


@dataclass(frozen=True)
class FormOutput:
    """Output of a form of a policy for N decisions.

    Attributes:
        description: what policy.so says about itself: "problem", "features" and "num_actions"; {} for other forms.
        decisions: int64 [N]. logits: float32 [N, A].
    """

    description: Mapping[str, Any]
    decisions: NDArray[np.int64]
    logits: NDArray[np.float32]


def run_form(form: Form, directory: Path, columns: Mapping[str, NDArray[np.generic]]) -> FormOutput:
    """Run a form of the policy in `directory` on N decisions, in a confined child.

    Args:
        columns: feature name -> [N] or [N, *shape].

    Raises:
        UserError: the form is missing or damaged, is not of these features, ends its process, or takes too long.
    """
    path = directory / FORM_FILES[form]
    rows = len(next(iter(columns.values())))
    with TemporaryDirectory(prefix="mlgo-form-") as name:
        scratch = Path(name)
        write_npz(scratch / _INPUT, **columns)
        module = module_command("components.core.policy.forms", options=("-W", "ignore"))
        # Temporary files of TensorFlow go where the child can write.
        command = ["/usr/bin/env", f"TMPDIR={scratch}", "TF_CPP_MIN_LOG_LEVEL=3", *module, form, str(directory), name]
        try:
            done = supervision.run(command, TIMEOUT_S, writable=scratch)
        except supervision.ProcessTimeout:
            raise UserError(f"{path} took more than {TIMEOUT_S:.0f} s for {rows} decisions", _REMEDY) from None
        if done.returncode < 0:
            raise UserError(
                f"{path} ended the process that ran it by {supervision.signal_name(-done.returncode)}", _REMEDY
            )
        if (scratch / _ERROR).exists():
            raise _read_error(scratch / _ERROR)
        if done.returncode != 0 or not (scratch / _OUTPUT).exists():
            raise UserError(f"{path} cannot be run: {done.reason:.300}", _REMEDY)
        return _read_output(scratch / _OUTPUT, path, rows)


def _read_error(path: Path) -> UserError:
    document = parse_json(read_bytes(path), "the error of the form", _REMEDY)
    words = [str(document.get(key, ""))[:2000] for key in ("problem", "remedy")] if isinstance(document, dict) else []
    return UserError(*words) if words and words[0] else UserError("the form of a policy cannot be run", _REMEDY)


def _read_output(path: Path, form: Path, rows: int) -> FormOutput:
    """Read what the child wrote, which code from elsewhere may have written in its place."""
    try:
        with os.fdopen(open_regular(path), "rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            decisions, logits = arrays["decisions"], arrays["logits"]
            description = parse_json(str(arrays["description"]), f"the description in {form}", _REMEDY)
        if not isinstance(description, dict) or decisions.shape != (rows,) or decisions.dtype != np.int64:
            raise ValueError("it does not decide about each decision")
        if logits.ndim != 2 or len(logits) != rows or logits.dtype != np.float32:
            raise ValueError("it has no logits for each decision")
    except NPZ_ERRORS as error:
        raise UserError(f"{form} is not a form of a policy: {error}", _REMEDY) from None
    return FormOutput(description, decisions, logits)


def _run_here(form: Form, directory: Path, columns: Mapping[str, NDArray[np.generic]]) -> dict[str, NDArray[Any]]:
    """Run a form in this process; return the arrays of the output file."""
    description: dict[str, Any] = {}
    if form == "native":
        native = NativePolicy(directory)
        if unknown := [spec.name for spec in native.features if not _holds(columns, spec)]:
            raise UserError(f"{directory / SHARED_OBJECT} is of another policy: it takes {', '.join(unknown)}", _REMEDY)
        logits = native.logits(columns)
        decisions = logits.argmax(axis=1)
        features = [spec.to_json() for spec in native.features]
        description = {"problem": native.problem, "features": features, "num_actions": native.num_actions}
    else:
        from components.core.policy.tf.saved_model import saved_model_runner, tflite_runner  # TensorFlow takes seconds

        runner = saved_model_runner if form == "saved_model" else tflite_runner
        decisions, logits = runner(directory, read_dense(directory))(columns)
    return {"decisions": decisions, "logits": logits, "description": np.array(json.dumps(description))}


def _holds(columns: Mapping[str, NDArray[np.generic]], spec: FeatureSpec) -> bool:
    column = columns.get(spec.name)
    return column is not None and column.size == len(column) * int(np.prod(spec.shape))


def _main(form: Form, directory: str, scratch: str) -> None:
    tempfile.tempdir = scratch
    with np.load(Path(scratch, _INPUT), allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    try:
        write_npz(Path(scratch, _OUTPUT), **_run_here(form, Path(directory), columns))
    except UserError as error:
        words = {"problem": error.problem, "remedy": error.remedy}
        Path(scratch, _ERROR).write_text(json.dumps(words), encoding="utf-8")
        sys.exit(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])  # type: ignore[arg-type]
