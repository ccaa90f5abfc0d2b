"""What the user asks a server to run, and what the server is sent after all checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.submit.overrides_document import StepOverrides


@dataclass(frozen=True)
class SubmitOptions:
    """What the user asks for, with the content of the files that options name.

    Attributes:
        overrides: settings of steps by the task's name.
        pipeline_root: root of artifacts; empty for the server's default.
        artifact_root: root of artifacts that steps read and write themselves; empty for none, or that of the stored
            pipeline.
        service_account: of the steps; empty for the server's default.
        stored_pipeline: name (KFP) or URI (Vertex AI) of a stored pipeline to start in place of `spec`, whose
            parameters must agree with it.
        ttl_hours, deadline_hours: limits of a run's workflow on KFP; 0 for none.

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
    commit_secret: str = ""
    commit: str = ""
    tag: Mapping[str, str] = field(default_factory=dict)
    small: bool = False
    ttl_hours: int = 0
    deadline_hours: int = 0
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
