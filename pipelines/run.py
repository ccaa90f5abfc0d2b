"""Runs a pipeline's steps on this machine: in order, in parallel where they are independent, each only if it must."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path

from components.console import UserError, say
from components.storage.directory import make_directory
from pipelines.flatten import STATUS
from pipelines.lock import run_lock
from pipelines.places import whole_digest
from pipelines.reuse import Records
from pipelines.runner import Runner, Running
from pipelines.step import Condition, Places, Step


def run_pipeline(steps: Sequence[Step], run: Path, runner: Runner, places: Places | None = None) -> set[str]:
    """Makes every artifact of `steps`; returns the names of the steps whose conditions did not hold.

    A step is reused if all it depends on is what its artifact was made from (pipelines.reuse), and it says so.

    Args:
        steps: of pipelines.flatten.steps_of.
        run: absolute; the run directory, made if it does not exist: logs, state, and artifacts unless `places` says
            otherwise.
        runner: where steps run.

    Raises:
        UserError: a step failed (named with its log), or another run works in the directory.
    """
    make_directory(run)
    places = places or Places(str(run), str(run / ".files"))
    records = Records(run, places)
    last = [step for step in steps if step.always]
    with run_lock(run) as lock, runner.session(run, places, lock):
        try:
            skipped = _run_all([step for step in steps if not step.always], records, runner)
        except UserError as error:
            status: dict[str, object] = {"state": "FAILED", "error": {"message": error.problem}}
            try:
                # Its words would only repeat the error.
                failed = _run_last(last, status, records, runner, shown=False)
            except KeyboardInterrupt:
                say(f"error: {error}")
                raise
            raise UserError("\n  and then ".join([error.problem, *failed]), error.remedy) from None
        for problem in _run_last(last, {"state": "SUCCEEDED"}, records, runner):
            say(f"warning: {problem}")  # what the pipeline made stands, whoever could not be told of it
    return skipped


def log_path(run: Path, step: Step) -> Path:
    """Where everything that the step says is kept."""
    return run / "logs" / f"{step.name}.log"


def _run_all(steps: list[Step], records: Records, runner: Runner) -> set[str]:
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
                if needs[step.name] & skipped or not _conditions_hold(step, records):
                    say(f"[{step.name}] left out: its condition does not hold")
                    skipped.add(step.name)
                elif _begin(step, records, runner):
                    done.add(step.name)
            if len(done | skipped) > before:
                continue  # what waited for them may begin before anything else ends
            if runner.running:
                ended = runner.wait()
                undone = [name for name in in_order if name not in {*done, *skipped, ended.step.name}]
                _finish(ended, records, undone)
                done.add(ended.step.name)
    finally:
        runner.stop()
    return skipped


def _run_last(
    steps: Sequence[Step], status: dict[str, object], records: Records, runner: Runner, shown: bool = True
) -> list[str]:
    """Runs them whatever becomes of each; returns what went wrong."""
    told = json.dumps({**status, "pipelineJobResourceName": records.run.name})
    failed = []
    for step in steps:
        arguments = tuple(argument.replace(STATUS, told) for argument in step.arguments)
        try:
            runner.start(replace(step, arguments=arguments), "", log_path(records.run, step), shown)
            ended = runner.wait()
            if ended.status != 0:
                failed.append(_how_it_failed(ended, log_path(records.run, step)))
        except UserError as error:
            failed.append(f"step {step.name} failed: {error.problem}")
        except OSError as error:
            failed.append(f"step {step.name} failed: {error}")
    return failed


def _how_it_failed(ended: Running, log: Path) -> str:
    how = f"exit status {ended.status}" if ended.status > 0 else f"killed by signal {-ended.status}"
    return f"step {ended.step.name} failed ({how}); what it said is in {log}"


def _conditions_hold(step: Step, records: Records) -> bool:
    return all(condition.holds(_told(condition, records)) for condition in step.conditions)


def _told(condition: Condition, records: Records) -> str:
    try:
        return Path(records.places.file(condition.step, condition.parameter)).read_text(encoding="utf-8")
    except FileNotFoundError:
        problem = f"step {condition.step} ended well but told no value of {condition.parameter}"
        raise UserError(problem, "a condition of the pipeline needs it: see the step's log") from None


def _begin(step: Step, records: Records, runner: Runner) -> bool:
    """Starts the step, or finds that its artifact can be reused: True."""
    identity = runner.identity(step)
    key = records.key(step, identity)
    record = records.reusable(step, key)
    if record:
        made = f"{records.places.artifact(step.output)}, made in {record.seconds:.0f} s"
        say(f"[{step.name}] reused: nothing it depends on has changed ({made})")
        return True
    note = records.prepare_work(step, identity) if step.work else ""
    say(f"[{step.name}] starts" + (f": {note}" if note else ""))
    runner.start(step, key, log_path(records.run, step))
    return False


def _finish(ended: Running, records: Records, undone: Sequence[str]) -> None:
    """Takes what a step made. UserError if it failed; undone: the steps that are left then."""
    step = ended.step
    artifact, log = records.places.artifact(step.output), log_path(records.run, step)
    if ended.status != 0:
        left = f"\n  not done: {', '.join(undone)}" if undone else ""
        raise UserError(
            f"{_how_it_failed(ended, log)}{left}",
            "mend what it names and run the same command again: finished steps are reused",
        )
    if step.output and not whole_digest(artifact):
        raise UserError(f"step {step.name} ended well but left no artifact in {artifact}", f"see {log}")
    seconds = time.monotonic() - ended.started_s
    records.finished(step, ended.key, seconds)
    say(f"[{step.name}] done in {seconds:.1f} s: {artifact}")
