"""Runs a chain of steps on this machine: in order, in parallel where they are independent, each only if it must."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from components.console import UserError, say
from components.storage import MANIFEST
from pipelines.lock import run_lock
from pipelines.processes import RunningStep, StepProcesses
from pipelines.reuse import Records
from pipelines.source import ROOT, SourceDigests
from pipelines.step import Step


def run_chain(steps: Sequence[Step], run: Path, root: Path = ROOT) -> None:
    """Makes every artifact of `steps` in the directory `run`.

    A step is reused if all it depends on is what its artifact was made from (pipelines.reuse), and it says so.

    Args:
        steps: each after those whose artifacts it reads.
        run: absolute; the run directory, made if it does not exist.
        root: the directory that holds the package `components` with the steps' code.

    Raises:
        UserError: a step failed (named with its log), or another run works in the directory.
    """
    run.mkdir(parents=True, exist_ok=True)
    records = Records(run, SourceDigests(root))
    with run_lock(run) as lock, StepProcesses(root, lock) as processes:
        waiting = list(steps)
        made: set[str] = set()
        while waiting or processes.running:
            ready = [step for step in waiting if made.issuperset(step.inputs)]
            reused = [step for step in ready if _begin(step, records, processes)]
            waiting = [step for step in waiting if step not in ready]
            made.update(step.output for step in reused)
            if not reused:  # else what waited for them may begin before anything else ends
                ended = processes.wait()
                _finish(ended, records)
                made.add(ended.step.output)


def log_path(run: Path, step: Step) -> Path:
    """Where everything that the step says is kept."""
    return run / "logs" / f"{step.name}.log"


def _begin(step: Step, records: Records, processes: StepProcesses) -> bool:
    """Starts the step, or finds that its artifact can be reused: True."""
    run, key = records.run, records.key(step)
    record = records.reusable(step, key)
    if record:
        made = f"{run / step.output}, made in {record.seconds:.0f} s"
        say(f"[{step.name}] reused: nothing it depends on has changed ({made})")
        return True
    note = records.prepare_work(step) if step.work else ""
    say(f"[{step.name}] starts" + (f": {note}" if note else ""))
    processes.start(step, key, run, log_path(run, step))
    return False


def _finish(ended: RunningStep, records: Records) -> None:
    step, status = ended.step, ended.process.returncode
    artifact, log = records.run / step.output, log_path(records.run, step)
    if status != 0:
        how = f"exit status {status}" if status > 0 else f"killed by signal {-status}"
        raise UserError(
            f"step {step.name} failed ({how}); what it said is in {log}",
            "mend what it names and run the same command again: finished steps are reused",
        )
    if not (artifact / MANIFEST).is_file():
        raise UserError(f"step {step.name} ended well but left no artifact in {artifact}", f"see {log}")
    seconds = time.monotonic() - ended.started_s
    records.finished(step, ended.key, seconds)
    say(f"[{step.name}] done in {seconds:.1f} s: {artifact}")
