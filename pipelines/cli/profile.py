"""`mlgo pipeline profile`: what the steps of a run used, and resources for the next one."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.launcher.step_cost import COLUMNS, table_rows
from components.platform.storage.output_files import replace_text, require_writable
from pipelines.cli.runs import pipeline_group, say_table
from pipelines.cli.server_options import takes_server
from pipelines.submit.profile import overrides_text, profile_of, profile_of_directory
from pipelines.submit.server import PipelineServer, find_run


@pipeline_group.command("profile", short_help="Show what the steps of a run used; write overrides from it.")
@click.argument("run")
@functools.partial(takes_server, required=False)
@click.option(
    "--overrides",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="New YAML file for --overrides of submit, schedule and upload: processors and memory of each step.",
)
@click.option(
    "--margin-percent",
    type=click.IntRange(0, 1000),
    default=50,
    show_default=True,
    metavar="N",
    help="What --overrides gives steps beyond what they used.",
)
def profile_command(server: PipelineServer | None, run: str, overrides: Path | None, margin_percent: int) -> None:
    """Show what each step of a run used: time, processor time, memory, and objects moved from and to object storage.
    RUN is a run's ID, the beginning of it, or its name; without --host and --vertex, the directory of a run on this
    machine.

    On KFP the figures are in the logs of steps, so read them before these are deleted; on Vertex AI in the metadata of
    artifacts. Only the last attempt of a step counts. The figures of a step that only waits for a RayJob are its own.

    \b
    Examples:
      mlgo pipeline profile 2f0a8b1e --host http://localhost:8080
      mlgo pipeline profile 2f0a8b1e --host http://localhost:8080 --overrides used.yaml
      mlgo pipeline profile runs/demo
    """
    if overrides is not None:
        require_writable(overrides, "--overrides")
        if overrides.exists():
            raise UserError(f"--overrides {overrides} exists", "name a new file, and copy what you need")
    profile = profile_of_directory(Path(run)) if server is None else profile_of(find_run(server, run))
    rows = table_rows(profile.costs)
    say_table([title.upper() for title in COLUMNS], rows, "no step has ended whose figures are known")
    for task in sorted(profile.failed):
        say(f"{task} failed: it may need more")
    for task, why in profile.unknown.items():
        say(f"nothing is known of {task}: {why}")
    if overrides is not None:
        text = overrides_text(profile, margin_percent, server is not None and server.limits_only)
        used = f"what the steps of {run} used, and {margin_percent}%"
        replace_text(overrides, f"# mlgo pipeline profile: {used}\n{text}")
        say(f"{overrides}: {used}")
