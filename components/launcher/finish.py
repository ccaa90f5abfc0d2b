"""Runs last, however the pipeline ended: says so in the log, and to a webhook if there is one."""

from __future__ import annotations

import json

import click

from components.console import UserError, run_step, say
from components.launcher.notify import notify


@click.command()
@click.option("--status", required=True, help="KFP's PipelineTaskFinalStatus, JSON.")
def main(status: str) -> None:
    """Tell how a pipeline ended, in the log and to the webhook in $MLGO_NOTIFY_URL.

    \b
    Example:
      python -m components.launcher.finish --status '{"state": "SUCCEEDED"}'
    """
    try:
        told = json.loads(status)
        state = str(told["state"])
    except (ValueError, KeyError, TypeError):
        raise UserError(f"--status {status!r} is not a final status of KFP", "it is what KFP passes") from None
    error = (told.get("error") or {}).get("message", "")
    say(f"the pipeline ended: {state}" + (f": {error}" if error else ""))
    notify({"pipeline": told.get("pipelineJobResourceName", ""), "state": state, "error": error})


if __name__ == "__main__":
    run_step(main)
