"""Run a pipeline's steps on this machine: in order, independent steps in parallel, unchanged steps not at all."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

from components.platform.console import say
from components.platform.console.interrupts import continues_when_rerun
from components.platform.errors import UserError
from components.platform.launcher.notify import OUTCOME_VARIABLE
from components.platform.storage.directory import make_directory
from pipelines.local.ir import STATUS
from pipelines.local.locations import artifact_digest
from pipelines.local.runners.runner import Runner, RunningStep
from pipelines.local.step import Condition, RunLocations, Step
from pipelines.local.step_cache import StepRecords
from pipelines.local.targets import require_free_targets

ORPHANS_WAIT_S = 30.0


def run_pipeline(steps: Sequence[Step], run: Path, runner: Runner, locations: RunLocations | None = None) -> set[str]:
    """Run `steps`, and return the names of those that were skipped because their conditions did not hold.

    A step is reused, and reported as such, if everything that it depends on is unchanged (step_cache.py).

    Args:
        run: absolute path of the run directory, created if it does not exist: logs, state, and, unless `locations` says
            otherwise, artifacts.
        locations: locations of artifacts and files; default: inside `run`.

    Raises:
        UserError: a step failed (the error names it and its log), another run uses the directory, or steps may not
            write there (targets.py).
    """
    locations = locations or RunLocations(str(run), str(run / ".files"))
    records = StepRecords(run, locations)
    require_free_targets(steps, records)
    make_directory(run)
    last = [step for step in steps if step.always]
    with continues_when_rerun(), run_lock(run) as lock, runner.session(run, locations, lock):
        try:
            skipped = _run_all([step for step in steps if not step.always], records, runner)
        except UserError as error:
            status: dict[str, object] = {"state": "FAILED", "error": {"message": error.problem}}
            try:
                # Not shown: their output would only repeat the error.
                failed = _run_last(last, status, records, runner, shown=False)
            except KeyboardInterrupt:
                say(f"error: {error}")
                raise
            raise UserError("\n  and then ".join([error.problem, *failed]), error.remedy) from None
        for problem in _run_last(last, {"state": "SUCCEEDED"}, records, runner):
            say(f"warning: {problem}")  # the pipeline itself succeeded, even if a notification failed
    return skipped


def log_path(run: Path, step: Step) -> Path:
    """Return the path of the step's log, which has all of its output."""
    return run / "logs" / f"{step.name}.log"


def _run_all(steps: list[Step], records: StepRecords, runner: Runner) -> set[str]:
    maker = {step.output: step.name for step in steps if step.output}
    needs = {
        step.name: {maker[name] for name in step.inputs.values()} | set(step.after) | {c.step for c in step.conditions}
        for step in steps
    }
    in_order = tuple(TopologicalSorter(needs).static_order())
    waiting, done, skipped = list(steps), set[str](), set[str]()
    try:
        while waiting or runner.running:
            ready = [step for step in waiting if needs[step.name] <= done | skipped]
            waiting = [step for step in waiting if step not in ready]
            before = len(done | skipped)
            for step in ready:
                holds = (condition.holds(_output_parameter(condition, records)) for condition in step.conditions)
                if needs[step.name] & skipped or not all(holds):
                    say(f"[{step.name}] skipped: its condition does not hold")
                    skipped.add(step.name)
                elif _begin(step, records, runner):
                    done.add(step.name)
            if len(done | skipped) > before:
                continue  # start the steps that waited for these before waiting for another to end
            if runner.running:
                ended = runner.wait()
                undone = [name for name in in_order if name not in {*done, *skipped, ended.step.name}]
                _finish(ended, records, undone)
                done.add(ended.step.name)
    finally:
        runner.stop()
    return skipped


def _run_last(
    steps: Sequence[Step], status: dict[str, object], records: StepRecords, runner: Runner, shown: bool = True
) -> list[str]:
    """Run the exit handlers, all of them even if one fails; return the failures."""
    final_status = json.dumps({**status, "pipelineJobResourceName": records.run.name})
    error = status.get("error")
    told = {
        "state": status["state"],
        "pipeline": records.run.name,
        "error": error["message"] if isinstance(error, dict) else "",
    }
    environment = {OUTCOME_VARIABLE: json.dumps(told)}
    failed = []
    for step in steps:
        arguments = tuple(argument.replace(STATUS, final_status) for argument in step.arguments)
        try:
            runner.start(
                replace(step, arguments=arguments, environment=environment), "", log_path(records.run, step), shown
            )
            ended = runner.wait()
            if ended.status != 0:
                failed.append(_describe_failure(ended, log_path(records.run, step)))
        except (UserError, OSError) as error:
            failed.append(f"step {step.name} failed: {getattr(error, 'problem', error)}")
    return failed


def _describe_failure(ended: RunningStep, log: Path) -> str:
    how = f"exit status {ended.status}" if ended.status > 0 else f"killed by signal {-ended.status}"
    return f"step {ended.step.name} failed ({how}); its log is {log}"


def _output_parameter(condition: Condition, records: StepRecords) -> str:
    try:
        return Path(records.locations.file(condition.step, condition.parameter)).read_text(encoding="utf-8")
    except FileNotFoundError:
        problem = f"step {condition.step} succeeded but wrote no value of {condition.parameter}"
        raise UserError(problem, "a condition of the pipeline needs that value: see the step's log") from None


def _begin(step: Step, records: StepRecords, runner: Runner) -> bool:
    """Start the step unless its artifact can be reused; return whether it is reused."""
    identity = runner.identity(step)
    key = records.key(step, identity)
    if (seconds := records.reusable(step, key)) is not None:
        made = f"{records.locations.artifact(step.output)}, made in {seconds:.0f} s"
        say(f"[{step.name}] reused: its inputs have not changed ({made})")
        return True
    note = records.prepare_work(step, identity) if step.work else ""
    say(f"[{step.name}] starts" + (f": {note}" if note else ""))
    runner.start(step, key, log_path(records.run, step))
    return False


def _finish(ended: RunningStep, records: StepRecords, undone: Sequence[str]) -> None:
    """Record the result of a step that has ended. UserError if the step failed, or wrote no artifact.

    Args:
        undone: names of the steps that have not finished, for the message of a failure.
    """
    step = ended.step
    artifact, log = records.locations.artifact(step.output), log_path(records.run, step)
    if ended.status != 0:
        left = f"\n  not done: {', '.join(undone)}" if undone else ""
        raise UserError(
            f"{_describe_failure(ended, log)}{left}",
            "fix the cause and run the same command again: finished steps are reused",
        )
    if step.output and not artifact_digest(artifact):
        raise UserError(f"step {step.name} succeeded but wrote no artifact to {artifact}", f"see {log}")
    seconds = time.monotonic() - ended.started_s
    records.finished(step, ended.key, seconds)
    say(f"[{step.name}] done in {seconds:.1f} s: {artifact}")


@contextmanager
def run_lock(run: Path) -> Iterator[int]:
    """Hold the lock of the run directory `run`; yield its file descriptor, which is passed on to the steps.

    Steps inherit the descriptor, so the lock lasts until the last of them ends, even if the run itself was killed and
    its steps are still cleaning up. A new run then waits for them up to ORPHANS_WAIT_S.

    Raises:
        UserError: another run uses the directory.
    """
    path = run / ".steps" / "lock"
    make_directory(path.parent, run)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, run)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, run: Path) -> None:
    deadline_s = time.monotonic() + ORPHANS_WAIT_S
    reported = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            if Path("/proc", owner or "?").exists() or time.monotonic() > deadline_s:
                raise UserError(
                    f"another mlgo run (process {owner or 'unknown'}) uses {run}",
                    "wait for it, stop it, or choose another --output",
                ) from None
        if not reported:
            say("waiting for the steps of a killed run to end")
            reported = True
        time.sleep(0.2)
