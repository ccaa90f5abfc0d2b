"""Options that name a server and what runs there, and the decorators that give them to commands as typed values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from components.platform.errors import UserError
from components.platform.launcher.commit_status import EXAMPLES
from components.platform.storage.downloads.http_download import is_http_url
from pipelines.cli.flags import IMAGES, PARAMS, PARAMS_FILE
from pipelines.cli.pipeline import PIPELINE, parameters
from pipelines.spec import load_spec
from pipelines.submit.kfp import KfpPipelines
from pipelines.submit.kfp_client import TOKEN_VARIABLE, KfpAddress, token_from_environment
from pipelines.submit.options import SubmitOptions
from pipelines.submit.overrides_document import StepOverrides, read_overrides
from pipelines.submit.server import PipelineServer

_MAX_HOURS = (2**31 - 1) // 3600
"""Limit of KFP's PipelineConfig, whose seconds have 32 bits."""


def parse_pairs(_context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """Return KEY=VALUE options as a mapping. UserError if one has another form, or two have the same key."""
    name, pairs = parameter.opts[0], dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise UserError(f"{name} {text!r} is not of the form KEY=VALUE", f"for example {name} team=compilers")
        if key in pairs:
            raise UserError(f"{name} {key} is given twice", "pass one value")
        pairs[key] = value
    return pairs


def option(*names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a click option whose default is its type's empty value."""
    return click.option(*names, **{"default": "", **settings})


_SERVER_OPTIONS = (
    option("--host", metavar="URL", help="URL of a KFP server, version 2.14 or newer."),
    option("--vertex", metavar="PROJECT/REGION", help="Project and region of Vertex AI Pipelines."),
    option("--namespace", metavar="NAME", help="KFP: namespace of the user, on a server with several users."),
    option(
        "--existing-token-file",
        type=click.Path(path_type=Path, dir_okay=False),
        default=None,
        metavar="FILE",
        help=f"KFP: file with a bearer token, read again for each request.  [default: the token in ${TOKEN_VARIABLE}]",
    ),
    option(
        "--in-cluster-token",
        is_flag=True,
        default=False,
        help="KFP: in a pod, send the service account's token that Kubernetes projects for pipelines.kubeflow.org.",
    ),
)
_PACKAGE_OPTIONS = (
    option(
        "--overrides",
        type=read_overrides,
        default=None,
        metavar="FILE",
        help="YAML file with CPUs, memory, nodes, volumes, Secrets and variables of steps; see docs/pipeline.md.",
    ),
    option(
        "--small",
        is_flag=True,
        default=False,
        help="KFP: let steps request half a processor and 2 GB, for nodes of two processors; limits stay.",
    ),
    option(
        "--notify-secret",
        metavar="NAME",
        help="KFP: Kubernetes Secret whose key `url` is a webhook to notify when the run ends.",
    ),
    option(
        "--artifact-root",
        metavar="URI",
        help="KFP: gs://BUCKET/PATH or s3://BUCKET/PATH that steps read and write themselves, with credentials from "
        "--overrides, so that KFP copies no artifacts; see docs/storage.md.",
    ),
    option(
        "--label",
        "labels",
        multiple=True,
        default=(),
        callback=parse_pairs,
        metavar="KEY=VALUE",
        help="Label of the job (Vertex AI), or of the pods of all steps (KFP); repeatable.",
    ),
    option(
        "--ttl-hours",
        type=click.IntRange(0, _MAX_HOURS),
        default=0,
        metavar="N",
        help="KFP 2.17: delete a run's workflow, with its pods and their logs, so long after its end.  [default: the "
        "server's]",
    ),
    option(
        "--deadline-hours",
        type=click.IntRange(0, _MAX_HOURS),
        default=0,
        metavar="N",
        help="KFP 2.17: end a run that takes longer, as failed.  [default: none]",
    ),
    click.option(
        "--cache/--no-cache",
        default=True,
        help="Reuse results on the server, for the steps that allow it, or run every step.  [default: --cache]",
    ),
    PIPELINE,
    IMAGES,
)
_RUN_OPTIONS = (
    option(
        "--pipeline-root",
        metavar="URI",
        help="gs://BUCKET/PATH of the artifacts; with --host also minio:// and s3://.  [default: the server's]",
    ),
    option("--name", help="Name of the run or schedule.  [default: the pipeline's name and the time]"),
    option("--experiment", metavar="NAME", help="KFP: experiment of the run.  [default: the pipeline's name]"),
    option(
        "--service-account",
        metavar="NAME",
        help="Service account of the steps: of Kubernetes, in their namespace (docs/cluster.md), or the e-mail address "
        "of one of Google Cloud.  [default: the server's]",
    ),
    option(
        "--network", metavar="NAME", help="Vertex AI: network of the steps, projects/NUMBER/global/networks/NETWORK."
    ),
    option("--encryption-key", metavar="NAME", help="Vertex AI: key of Cloud KMS, projects/.../cryptoKeys/KEY."),
    PARAMS,
    PARAMS_FILE,
    *_PACKAGE_OPTIONS,
)

_COMMIT_OPTIONS = (
    option(
        "--commit-secret",
        metavar="NAME",
        help="KFP: Kubernetes Secret whose key `token` may set statuses of the commit, which gets one when the run "
        "ends: the verdict, and a link to the run.",
    ),
    option(
        "--commit",
        metavar="URL",
        help=f"KFP: the commit of --commit-secret: {EXAMPLES}.  [default: the commit that GitHub Actions or GitLab "
        "CI/CD builds]",
    ),
)
_STORED_PIPELINE = option(
    "--stored-pipeline",
    metavar="NAME|URI",
    help="Start a pipeline that `mlgo pipeline upload` stored, in place of sending one; needs no kfp and no --images. "
    "KFP: its name, for the newest version; a run of the same --name in the experiment is not started again. Vertex "
    "AI: its URI.",
)


def takes_server(command: Callable[..., Any], required: bool = True) -> Callable[..., Any]:
    """Add the options that name a server to a command, which gets it as `server`.

    Args:
        required: otherwise the server is None if no option names one.

    Raises (when the command is called):
        UserError: none or both are named, the server does not have another option, or credentials contradict.
    """

    @functools.wraps(command)
    def call(**values: Any) -> Any:
        own = {name: values[name] for name in inspect.signature(choose_server).parameters}
        others = {name: value for name, value in values.items() if name not in own}
        if not required and not own["host"] and not own["vertex"]:
            return command(server=None, **others)
        server = choose_server(**own)
        for name, (reason, remedy) in server.lacks.items():
            if values.get(name):
                raise UserError(f"--{name.replace('_', '-')}: {reason}", remedy)
        return command(server=server, **others)

    return add_options(call, _SERVER_OPTIONS)


def choose_server(
    host: str = "",
    vertex: str = "",
    namespace: str = "",
    existing_token_file: Path | None = None,
    in_cluster_token: bool = False,
) -> PipelineServer:
    """Return the server that the options of this name choose. UserError if they choose none, or contradict."""
    if bool(host) == bool(vertex):
        raise UserError("exactly one of --host and --vertex is needed", "pass --host URL or --vertex PROJECT/REGION")
    if vertex:
        from pipelines.vertex.server import VertexPipelines

        return VertexPipelines.parse(vertex)
    if not is_http_url(host if "://" in host else f"http://{host}"):
        raise UserError(f"--host {host!r} is not the URL of a server", "--host https://kubeflow.example.com/pipeline")
    if existing_token_file and in_cluster_token:
        raise UserError("--existing-token-file and --in-cluster-token are two tokens", "leave one out")
    token = "" if existing_token_file or in_cluster_token else token_from_environment()
    return KfpPipelines(KfpAddress(host, namespace, token, existing_token_file, in_cluster_token))


def _takes_options(command: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]) -> Callable[..., Any]:
    """Add options to a command, which gets them as `options`."""
    names = {field.name for field in fields(SubmitOptions)}

    @functools.wraps(command)
    def call(
        pipeline: Path,
        overrides: Mapping[str, StepOverrides] | None,
        params: tuple[str, ...] = (),
        params_file: Mapping[str, str] | None = None,
        **others: Any,
    ) -> Any:
        settings = {name: others.pop(name) for name in names & set(others)}
        texts = parameters(params, params_file)
        chosen = SubmitOptions(load_spec(pipeline), parameters=texts, overrides=overrides or {}, **settings)
        return command(options=chosen, **others)

    return add_options(call, options)


takes_package = functools.partial(_takes_options, options=_PACKAGE_OPTIONS)
takes_run = functools.partial(_takes_options, options=_RUN_OPTIONS)
takes_run_or_stored = functools.partial(_takes_options, options=(*_RUN_OPTIONS, *_COMMIT_OPTIONS, _STORED_PIPELINE))


def add_options(command: Callable[..., Any], options: tuple[Callable[[Any], Any], ...]) -> Callable[..., Any]:
    """Return a command with options, in this order."""
    for add in reversed(options):
        command = add(command)
    return command
