"""Records in a lease's document that the result of its work is published, so that the work can be removed later.

    published    URI of the result; "" if it is not in object storage, or the work goes on

`mlgo storage sweep --finished` reads it (object_storage/finished_runs.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.shared_state.root_lease import RootLease
from components.platform.storage.uri import ObjectUri, parse_location, uri_of

PUBLISHED = "published"


@contextmanager
def record_publication(lease: RootLease, output: Path) -> Iterator[None]:
    """While the block runs, which publishes `output`, its result counts as missing, also that of earlier work.

    A failure to record it is only a warning: the result is published, and nothing is removed.
    """
    if lease.content.get(PUBLISHED):
        lease.update(**{PUBLISHED: ""})
    yield
    try:
        lease.update(**{PUBLISHED: str(uri_of(output) or "")})
    except UserError as error:
        say(f"warning: `mlgo storage sweep --finished` will keep the work of this run: {error.problem}")


def published_result(document: Mapping[str, Any]) -> ObjectUri | None:
    """Return what the work of a lease's document made, if its holder released it after the publication."""
    try:
        result = parse_location(str(document[PUBLISHED]))
    except (KeyError, UserError):
        return None
    return result if isinstance(result, ObjectUri) and document.get("released") is True else None
