"""What the user asks a server to run, what servers do, and the checks between the two."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.uri import GS
from pipelines.images import given_images
from pipelines.parameters.check import checked_values, uses_rayjob
from pipelines.parameters.on_server import (
    check_bucket_exists,
    check_llvm_in_images,
    check_places_on_server,
    check_recipe_in_images,
    check_state_on_server,
)
from pipelines.spec import builds_sdk, parameter_values
from pipelines.submit.cron import CronSchedule
from pipelines.submit.overrides_document import StepOverrides
from pipelines.submit.polling import PATIENCE_S, ServerRun, poll, report_canceled, report_run_continues
from pipelines.submit.prepare import ready_spec, without_cache
from pipelines.submit.reuse import reuse_by_content


@dataclass(frozen=True)
class SubmitOptions:
    """What the user asks for, with the content of the files that options name.

    Attributes:
        spec: PipelineSpec of the compiled pipeline.
        images: the images of the steps, as --images names them.
        parameters: the pipeline's parameters that are given, as text.
        overrides: settings of steps by the task's name.
        pipeline_root: root of artifacts; empty for the server's default.
        artifact_root: root of artifacts that steps read and write themselves; empty for none, or that of the stored
            pipeline.
        name: of the run or schedule; empty for one with the time.
        service_account: of the steps; empty for the server's default.
        stored_pipeline: name (KFP) or URI (Vertex AI) of a stored pipeline to start in place of `spec`, whose
            parameters must agree with it.
        cache: the server may reuse results.

    The others are as the options of the command line.
    """

    spec: Mapping[str, Any]
    images: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, StepOverrides] = field(default_factory=dict)
    pipeline_root: str = ""
    artifact_root: str = ""
    name: str = ""
    experiment: str = ""
    service_account: str = ""
    network: str = ""
    encryption_key: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    notify_secret: str = ""
    small: bool = False
    cache: bool = True
    stored_pipeline: str = ""

    @property
    def pipeline(self) -> str:
        """Return the name of the pipeline: of the stored one, if that has a name, or of the compiled one."""
        stored = "" if "://" in self.stored_pipeline else self.stored_pipeline
        return stored or str(self.spec["pipelineInfo"]["name"])

    @property
    def experiment_name(self) -> str:
        """Return the name of the experiment, which KFP's runs have."""
        return self.experiment or self.pipeline


@dataclass(frozen=True)
class Package:
    """A pipeline that is ready for a server: PipelineSpec, and KFP's PlatformSpec or None."""

    spec: Mapping[str, Any]
    platform: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class RunRequest:
    """A run, or the runs of a schedule, after all checks.

    Attributes:
        package: the pipeline that is sent; None for a stored one.
        parameters: those that are given, with their types.
        name: display name.
    """

    options: SubmitOptions
    package: Package | None
    parameters: Mapping[str, Any]
    name: str


class PipelineServer(Protocol):
    """A server that runs pipelines, and with which credentials it is asked.

    Every method raises UserError if the server refuses, and polling.NoAnswer if a retry may help.
    """

    lacks: ClassVar[Mapping[str, tuple[str, str]]]
    """Option of a command that this kind of server does not have -> why, and what to do."""
    poll_s: float

    def check(self, options: SubmitOptions) -> None:
        """Raise UserError for a pipeline root or a setting that no run here can have."""

    def check_rayjob(self, options: SubmitOptions) -> None:
        """Raise UserError if no step of this run can start a Ray cluster."""

    def package(self, options: SubmitOptions, ray: bool | None) -> Package:
        """Return the pipeline with digests of images and what else the options change.

        Args:
            ray: whether a step starts a Ray cluster; None if that is unknown.
        """

    def submit(self, request: RunRequest) -> str:
        """Start a run; return its ID."""

    def cron_expression(self, cron: CronSchedule) -> str:
        """Return a schedule as this kind of server reads it. UserError if it cannot have it."""

    def schedule(self, request: RunRequest, cron: str, max_concurrency: int) -> str:
        """Start runs at the times of a cron expression; return a line that names the schedule.

        Runs that were missed, while it was disabled for example, do not start.

        Args:
            max_concurrency: how many of its runs may run at the same time.
        """

    def upload(self, options: SubmitOptions, version: str, repository: str) -> str:
        """Store a pipeline as a new version, named by its options or by itself; return a line that names it.

        Args:
            repository: where Vertex AI stores it.
        """

    def run(self, run_id: str) -> ServerRun:
        """Return a run. NotFound if there is none."""

    def describe_run(self, run_id: str, name: str) -> str:
        """Return a line that names a new run."""

    def page(self, run_id: str) -> str:
        """Return the URL of a page where a run is shown."""

    def cancel(self, run_id: str) -> bool:
        """Ask the server to end a run; return whether a Ray cluster of it may remain. UserError if it has ended."""

    def retry(self, run_id: str) -> None:
        """Start the failed tasks of a run again, and those that depend on them. UserError unless it has failed."""


def prepare_run(server: PipelineServer, options: SubmitOptions, starts_now: bool = False) -> RunRequest:
    """Check what the user asks for, and return what the server is sent.

    Args:
        starts_now: the run reads its inputs as they are now, so their content decides what is reused. The runs of a
            schedule read them later.

    Raises:
        UserError: a parameter, a root or another option is invalid, an image was not pushed, or the server or the
            pipeline does not have what the overrides ask for.
    """
    stored = bool(options.stored_pipeline)
    if stored:
        _refuse_changes(options)
    server.check(options)
    for option, root in (("--pipeline-root", options.pipeline_root), ("--artifact-root", options.artifact_root)):
        if root.startswith(f"{GS}://"):
            check_bucket_exists(root, option)
    ray = _check_parameters(server, options)
    values = parameter_values(options.spec, options.parameters)
    package = None if stored else server.package(options, ray)
    if package and starts_now and options.cache:
        spec, reasons = reuse_by_content(package.spec, values)
        for reason in reasons:
            say(f"not reused from earlier runs: steps that depend on --param {reason}")
        package = Package(spec, package.platform)
    name = options.name or f"{options.pipeline}-{time.strftime('%Y%m%d-%H%M%S')}"
    return RunRequest(options, package, {key: values[key] for key in options.parameters}, name)


def resolve_images(options: SubmitOptions, ray: bool | None = False) -> dict[str, Any]:
    """Return the PipelineSpec with digests of images, as `prepare.ready_spec`, and with --no-cache if that is given."""
    spec = ready_spec(options.spec, given_images(options.images), ray)
    return spec if options.cache else without_cache(spec)


def wait(server: PipelineServer, run_id: str, poll_s: float | None = None, patience_s: float = PATIENCE_S) -> None:
    """Print each task's state as it changes until the run succeeds, and then its results.

    Raises:
        UserError: the run failed, or the server did not answer for `patience_s`.
        click.exceptions.Exit: the run was canceled (polling.EXIT_CANCELED), or following it was interrupted.
    """
    page = server.page(run_id)
    shown: dict[str, str] = {}
    with report_run_continues(run_id, page):
        run = poll(partial(server.run, run_id), run_id, page, patience_s)
        while True:
            tasks = poll(lambda: run.tasks, run_id, page, patience_s)  # which may ask for a stored pipeline
            lines = {task.name: f"[{task.name}] {task.describe()}" for task in tasks if task.state}
            lines |= {remark: remark for remark in run.remarks()}
            for key, line in lines.items():
                if shown.get(key) != line:
                    say(line)
            shown |= lines
            if run.settled:
                break
            time.sleep(server.poll_s if poll_s is None else poll_s)
            poll(run.refresh, run_id, page, patience_s)
    if run.state == "CANCELED":
        report_canceled(run_id, page)
    if run.state != "SUCCEEDED":
        raise run.failure()
    for line in run.results():
        say(line)


def _check_parameters(server: PipelineServer, options: SubmitOptions) -> bool | None:
    """Check the parameters of a run; return whether a step starts a Ray cluster.

    None: the pipeline has no parameter that decides this, as the smoke test, whose step looks for KubeRay.
    """
    values = checked_values(options.spec, options.parameters)
    # The volumes of a stored version are unknown.
    mounts = [path for step in options.overrides.values() for _key, _volume, path in step.mounts()]
    check_places_on_server(values, None if options.stored_pipeline else mounts)
    if not builds_sdk(options.spec):
        check_llvm_in_images(values)
        check_recipe_in_images(values)
    if state := values.get("retrain_state"):
        check_state_on_server(state, options.pipeline_root, options.artifact_root)
    ray = uses_rayjob(values)
    if ray:
        server.check_rayjob(options)
    return ray if "workers" in values else None


def _refuse_changes(options: SubmitOptions) -> None:
    """Raise UserError for an option that changes the pipeline, which is stored."""
    for name in ("overrides", "small", "notify_secret"):
        if getattr(options, name):
            refuse_change(options, name)
    if not options.cache:
        raise UserError("--no-cache changes the pipeline, which is stored on the server", "pass it to upload")


def refuse_change(options: SubmitOptions, name: str) -> None:
    """Raise the UserError for the option `name`, which changes the pipeline, which is stored."""
    raise UserError(
        f"--{name.replace('_', '-')} changes the pipeline, which is stored on the server",
        f"pass it to mlgo pipeline upload, or leave --stored-pipeline {options.stored_pipeline} out",
    )
