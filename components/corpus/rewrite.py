"""Changes a corpus in place: `mlgo corpus split` and `combine`, as mlgo-utils' commands do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.core.formats.corpus import DESCRIPTION, REPORT, load_corpus
from components.core.formats.splits import FILE as SPLITS
from components.corpus.profiles import FOLDER as PROFILES
from components.platform.errors import UserError
from components.platform.storage.kinds import describe_kind
from components.platform.storage.manifest import MANIFEST, read_manifest, require_whole, scan_directory, write_manifest


@contextmanager
def rewriting(directory: Path, verified: bool) -> Iterator[None]:
    """Remove the manifest of a corpus while the block changes the corpus, so that no reader takes it for finished.

    The new manifest lists the files of the corpus, and no others that a user keeps in the directory. If the block
    fails, the former manifest is restored.

    Args:
        verified: whether the files have to be those of the former manifest.

    Raises:
        UserError: the manifest is that of another tool or of another artifact; or the corpus is damaged.
    """
    directory = directory.absolute()
    path = directory / MANIFEST
    before = path.read_bytes() if path.exists() else None
    if before is not None:
        manifest = read_manifest(directory)
        if manifest.kind != "corpus":
            raise UserError(
                f"{directory} is {describe_kind(manifest.kind)}, not a corpus", "pass the directory of a corpus"
            )
        if verified:
            require_whole(manifest)
        path.unlink()
    try:
        yield
        write_manifest(directory, scan_directory(directory, _corpus_files(directory)), "corpus")
    except BaseException:
        if before is not None:
            path.write_bytes(before)
        raise


def _corpus_files(directory: Path) -> list[Path]:
    files = [directory / name for name in (DESCRIPTION, REPORT, SPLITS)]
    files += (directory / PROFILES).glob("*")
    for module in load_corpus(directory):
        files += [module.bitcode, module.cmd]
        if module.thinlto_index is not None:
            files.append(module.thinlto_index)
    return [path for path in files if path.is_file()]
