"""Runs a chain of steps on this machine: in order, in parallel where they are independent, each only if it must."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import components
from components.console import UserError, say
from components.storage import MANIFEST
from pipelines.lock import run_lock
from pipelines.processes import RunningStep, StepProcesses
from pipelines.reuse import prepare_work, record_finished, reusable, step_key
from pipelines.step import Step


def run_chain(steps: Sequence[Step], run: Path) -> None:
    """Makes every artifact of `steps` in the directory `run`.

    A step is reused if what it depends on is what its artifact was made from (pipelines.reuse), and it says so.

    Raises:
        UserError: a step failed (named with its log), or another run works in the directory.
    """
    run.mkdir(parents=True, exist_ok=True)
    root = Path(components.__file__).parent.parent
    with run_lock(run) as lock, StepProcesses(root, lock) as processes:
        waiting = list(steps)
        made: set[str] = set()
        while waiting or processes.running:
            for step in [s for s in waiting if made.issuperset(s.inputs)]:
                waiting.remove(step)
                if _begin(step, run, processes):
                    made.add(step.output)
                    break  # a reused artifact may let an earlier one of the list begin: look again
            else:
                ended = processes.wait()
                _finish(ended, run)
                made.add(ended.step.output)


def _begin(step: Step, run: Path, processes: StepProcesses) -> bool:
    """Starts the step, or finds that its artifact can be reused: True."""
    key = step_key(step, run)
    record = reusable(step, run, key)
    if record:
        made = f"{run / step.output}, made in {record.seconds:.0f} s"
        say(f"[{step.name}] reused: nothing it depends on has changed ({made})")
        return True
    note = prepare_work(step, run) if step.work else ""
    say(f"[{step.name}] starts" + (f": {note}" if note else ""))
    processes.start(step, key, run, log_path(run, step))
    return False


def _finish(ended: RunningStep, run: Path) -> None:
    step, status = ended.step, ended.process.returncode
    log = log_path(run, step)
    if status != 0:
        how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
        raise UserError(
            f"step {step.name} failed ({how}); what it said is in {log}",
            "mend what it names and run the same command again: finished steps are reused",
        )
    if not (run / step.output / MANIFEST).is_file():
        raise UserError(f"step {step.name} ended well but left no artifact in {run / step.output}", f"see {log}")
    seconds = time.monotonic() - ended.started_s
    record_finished(step, run, ended.key, seconds)
    say(f"[{step.name}] done in {seconds:.1f} s: {run / step.output}")


def log_path(run: Path, step: Step) -> Path:
    return run / "logs" / f"{step.name}.log"
