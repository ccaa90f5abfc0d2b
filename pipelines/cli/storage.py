"""`mlgo storage`: maintain artifacts in object storage."""

from __future__ import annotations

from pathlib import Path

import click

from components.core.console import UserError, say
from components.core.storage.uri import SCHEME, GsUri, parse_place


class BucketOrPlace(click.ParamType):
    """Convert gs://BUCKET or gs://BUCKET/PATH to a `GsUri`, whose path may be empty."""

    name = "uri"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> GsUri:
        if isinstance(value, GsUri):
            return value
        text = str(value)
        bucket = text.removeprefix(SCHEME).rstrip("/")
        if text.startswith(SCHEME) and "/" not in bucket:
            place = parse_place(f"{SCHEME}{bucket}/any")
            assert isinstance(place, GsUri)
            return GsUri(place.bucket, "")
        place = parse_place(text)
        if not isinstance(place, GsUri):
            raise UserError(f"{text} is a local path", "pass gs://BUCKET or gs://BUCKET/PATH")
        return place


@click.group(name="storage")
def storage_group() -> None:
    """Maintain artifacts in object storage.

    \b
    Examples:
      mlgo storage download gs://my-bucket/runs/7/release clang
      mlgo storage sweep gs://my-bucket --dry-run
    """


@storage_group.command(name="download")
@click.argument("source", type=BucketOrPlace(), metavar="gs://BUCKET/PATH")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def download_command(source: GsUri, directory: Path) -> None:
    """Download an artifact to a directory, and verify each file by its checksum.

    An artifact that is there already is replaced at once when the new one is complete.

    \b
    Example:
      mlgo storage download gs://my-bucket/runs/7/release clang
    """
    from components.core.storage.fetch import fetch

    fetch(source, directory.absolute())


@storage_group.command(name="sweep", context_settings={"show_default": True})
@click.argument("place", type=BucketOrPlace(), metavar="gs://BUCKET[/PATH]")
@click.option("--dry-run", is_flag=True, help="Only list what would be removed.")
@click.option(
    "--older-than-hours",
    type=click.IntRange(24, 24 * 365),
    default=24,
    metavar="N",
    help="Remove folders whose newest object is older than this. Writers publish nothing older than 24 hours, so a "
    "younger folder may still be in use.",
)
def sweep_command(place: GsUri, dry_run: bool, older_than_hours: int) -> None:
    """Remove folders that killed writers left in a bucket: files that no manifest names.

    Never removes an artifact, a folder whose writer may still publish it, or objects that this program did not write.
    It may run at any time and repeatedly, also while steps read and write in the bucket.

    \b
    Examples:
      mlgo storage sweep gs://my-bucket --dry-run
      mlgo storage sweep gs://my-bucket/runs --older-than-hours 168
    """
    from components.core.storage.sweep import sweep

    verb = "would remove" if dry_run else "removed"
    folders = objects = size_bytes = 0
    for folder in sweep(place, dry_run, older_than_hours * 3600.0):
        count = len(folder.generations)
        say(f"{verb} {folder.uri}: {count} objects, {folder.size_bytes / 1e6:.1f} MB")
        folders += 1
        objects += count
        size_bytes += folder.size_bytes
    say(f"{place}: {verb} {folders} abandoned folders, {objects} objects, {size_bytes / 1e6:.1f} MB")
