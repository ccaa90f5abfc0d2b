"""Exit handler of the pipeline: reports how it ended in the log, and to a webhook if one is configured."""

from __future__ import annotations

import click

from components.core.console import run_step, say
from components.core.launcher.notify import notify
from components.core.storage.input_files import expect_shape, parse_json


@click.command()
@click.option("--status", required=True, help="KFP's PipelineTaskFinalStatus in JSON.")
def main(status: str) -> None:
    """Report how a pipeline ended, in the log and to the webhook in $MLGO_NOTIFY_URL.

    \b
    Example:
      python -m components.core.launcher.finish --status '{"state": "SUCCEEDED"}'
    """
    remedy = "pass the JSON that KFP passes"
    final_status = parse_json(status, "--status", remedy)
    with expect_shape("--status", "a final status of KFP", remedy):
        state = str(final_status["state"])
        error = str((final_status.get("error") or {}).get("message", ""))
    say(f"the pipeline ended: {state}" + (f": {error}" if error else ""))
    notify({"pipeline": final_status.get("pipelineJobResourceName", ""), "state": state, "error": error})


if __name__ == "__main__":
    run_step(main)
