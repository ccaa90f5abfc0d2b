"""`mlgo storage`: maintain artifacts in object storage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.object_storage.finished_runs import sweep_finished
from components.platform.storage.object_storage.sweep import SweptObjects, sweep
from components.platform.storage.uri import USAGE, ObjectUri, in_object_storage, parse_location
from pipelines.retrain.retention import MIN_DAYS, sweep_runs


def _bucket_or_place(text: str) -> ObjectUri:
    """Convert gs://BUCKET or gs://BUCKET/PATH, or the same of s3://, to an `ObjectUri`, whose path may be empty."""
    scheme, _separator, rest = text.partition("://")
    bucket = rest.rstrip("/")
    if in_object_storage(text) and "/" not in bucket:
        uri = parse_location(f"{scheme}://{bucket}/any")
        assert isinstance(uri, ObjectUri)
        return replace(uri, path="")
    uri = parse_location(text)
    if not isinstance(uri, ObjectUri):
        raise UserError(f"{text} is a local path", f"pass gs://BUCKET, s3://BUCKET, or {USAGE}")
    return uri


@click.group(name="storage")
def storage_group() -> None:
    """Maintain artifacts in object storage.

    \b
    Examples:
      mlgo storage download gs://my-bucket/runs/7/release clang
      mlgo storage sweep gs://my-bucket --dry-run
      mlgo storage sweep s3://my-bucket/runs --finished
      mlgo storage sweep s3://my-bucket/runs --older-than 90 --state s3://my-bucket/retrain.json
    """


@storage_group.command(name="download")
@click.argument("source", type=_bucket_or_place, metavar="URI")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def download_command(source: ObjectUri, directory: Path) -> None:
    """Download an artifact to a directory, and verify each file by its checksum.

    An artifact that is there already is replaced at once when the new one is complete.

    \b
    Example:
      mlgo storage download gs://my-bucket/runs/7/release clang
    """
    from components.platform.storage.object_storage.fetch import fetch

    fetch(source, directory.absolute())


@storage_group.command(name="sweep", context_settings={"show_default": True})
@click.argument("place", type=_bucket_or_place, metavar="URI")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option(
    "--older-than-hours",
    type=click.IntRange(24, 24 * 365),
    default=24,
    metavar="N",
    help="Remove folders whose newest object is older than this. Writers publish nothing older than 24 hours, so a "
    "younger folder may still be in use.",
)
@click.option(
    "--finished",
    is_flag=True,
    help="Also remove what trainings and searches keep that have ended and whose result is there: last checkpoints, "
    "TensorBoard logs (a policy has a copy), leases. One of them that is extended later starts from the beginning.",
)
@click.option(
    "--older-than",
    type=click.IntRange(MIN_DAYS, 3650),
    default=None,
    metavar="DAYS",
    help="Also remove the artifacts of training runs on a server whose newest object is older than this, and that "
    "failed before their policy, or whose policy --state says was not promoted.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="URI",
    help="With --older-than: state of retraining, repeatable. Runs stay that have what its deployed policy or its "
    "history names.",
)
def sweep_command(
    place: ObjectUri,
    dry_run: bool,
    older_than_hours: int,
    finished: bool,
    older_than: int | None,
    states: tuple[str, ...],
) -> None:
    """Remove folders that killed writers left in a bucket: files that no manifest names.

    Never removes a folder whose writer may still publish it, or objects that this program did not write; artifacts only
    with --finished (checkpoints) and --older-than. It may run at any time and repeatedly, also while steps read and
    write in the bucket.
    URI is gs://BUCKET[/PATH] or s3://BUCKET[/PATH].

    \b
    Examples:
      mlgo storage sweep gs://my-bucket --dry-run
      mlgo storage sweep s3://my-bucket/runs --older-than-hours 168
      mlgo storage sweep s3://my-bucket/runs --finished --dry-run
      mlgo storage sweep s3://my-bucket/runs --older-than 90 --state s3://my-bucket/retrain.json --dry-run
    """
    if states and older_than is None:
        raise UserError("--state without --older-than", "pass --older-than DAYS, too")
    verb = "would remove" if dry_run else "removed"
    older_than_s = older_than_hours * 3600.0

    def report(swept: Iterable[SweptObjects], what: str) -> None:
        found = objects = size_bytes = 0
        for one in swept:
            title = f"{one.uri}, {one.what}" if one.what else str(one.uri)
            say(f"{verb} {title}: {len(one.versions)} objects, {one.size_bytes / 1e6:.1f} MB")
            found += 1
            objects += len(one.versions)
            size_bytes += one.size_bytes
        say(f"{place}: {verb} {found} {what}, {objects} objects, {size_bytes / 1e6:.1f} MB")

    report(sweep(place, dry_run, older_than_s), "abandoned folders")
    if finished:
        report(sweep_finished(place, dry_run, older_than_s), "leftovers of ended runs")
    if older_than is not None:
        report(sweep_runs(place, states, older_than, dry_run), "old runs")
