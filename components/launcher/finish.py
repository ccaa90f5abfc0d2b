"""Runs last, however the pipeline ended: says so in the log, and to a web hook if there is one."""

from __future__ import annotations

import click
import requests

from components.console import UserError, run_step, say
from components.storage.input_files import expect_shape, parse_json

_TIMEOUT_S = 20.0


@click.command()
@click.option("--status", required=True, help="KFP's PipelineTaskFinalStatus, JSON.")
@click.option("--notify-url", default="", help="Gets a POST of the outcome, JSON.")
def main(status: str, notify_url: str) -> None:
    """Tell how a pipeline ended.

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
    if notify_url:
        outcome = {"pipeline": told.get("pipelineJobResourceName", ""), "state": state, "error": error}
        try:
            requests.post(notify_url, json=outcome, timeout=_TIMEOUT_S).raise_for_status()
        except requests.RequestException as failure:
            problem = f"{notify_url} did not take the notice: {failure}"
            raise UserError(problem, "check the pipeline's notify_url") from None


if __name__ == "__main__":
    run_step(main)
