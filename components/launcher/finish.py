"""Runs last, however the pipeline ended: says so in the log, and to a webhook if there is one."""

from __future__ import annotations

import click

from components.console import run_step, say
from components.launcher.notify import notify
from components.storage.input_files import expect_shape, parse_json


@click.command()
@click.option("--status", required=True, help="KFP's PipelineTaskFinalStatus, JSON.")
def main(status: str) -> None:
    """Tell how a pipeline ended, in the log and to the webhook in $MLGO_NOTIFY_URL.

    \b
    Example:
      python -m components.launcher.finish --status '{"state": "SUCCEEDED"}'
    """
    remedy = "it is what KFP passes"
    told = parse_json(status, "--status", remedy)
    with expect_shape("--status", "a final status of KFP", remedy):
        state = str(told["state"])
        error = str((told.get("error") or {}).get("message", ""))
    say(f"the pipeline ended: {state}" + (f": {error}" if error else ""))
    notify({"pipeline": told.get("pipelineJobResourceName", ""), "state": state, "error": error})


if __name__ == "__main__":
    run_step(main)
