"""Archives on web servers: downloaded once, compared with their checksum, and unpacked."""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.digests import file_digest
from components.platform.storage.downloads.http_download import download, is_http_url
from components.platform.storage.downloads.retry import Say
from components.platform.storage.shared_state.file_lock import exclusive_lock

_CHECKSUM = re.compile(r"sha256=([0-9a-fA-F]{64})")
USAGE = "https://HOST/NAME.tar.gz#sha256=HEX"


def is_archive_url(text: str) -> bool:
    """Return whether `text` is the URL of something on a web server, with or without a checksum."""
    return is_http_url(text.partition("#")[0])


def fetch_archive(url: str) -> Path:
    """Return a directory with the content of an archive on a web server, in the cache.

    Args:
        url: https://HOST/NAME.tar.gz#sha256=HEX. tar with any compression, or zip; a single top-level folder is the
            content.

    Raises:
        UserError: there is no checksum, it is another one, or the archive cannot be downloaded or unpacked.
    """
    address, _hash, fragment = url.partition("#")
    match = _CHECKSUM.fullmatch(fragment)
    if match is None:
        raise UserError(
            f"{url} has no SHA-256, so nothing shows whether it is what you want",
            f"write it as {USAGE} (sha256sum FILE)",
        )
    sha256 = match[1].lower()
    cache = default_cache_dir() / "web"
    content = cache / "unpacked" / sha256[:32]
    if content.is_dir():  # renamed to this when it was complete
        return content
    archive = download_archive(address, sha256, cache, "its URL", say)
    with exclusive_lock(cache / "locks" / sha256[:32], f"waiting for another process that unpacks {address}"):
        if not content.is_dir():
            shutil.rmtree(content.with_name(content.name + ".unpacking"), ignore_errors=True)  # of a killed process
            unpack(archive, content, confined=True)
    return content


def download_archive(url: str, sha256: str, cache: Path, source: str, progress: Say = say) -> Path:
    """Return the file at a URL, which is kept below `cache`.

    Args:
        sha256: 64 hexadecimal digits in lower case.
        source: what says the checksum, for messages.

    Raises:
        UserError: it cannot be downloaded, or has another checksum.
    """
    folder = cache / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^A-Za-z0-9._+-]", "_", url.rsplit("/", 1)[-1])[-100:]
    archive = folder / f"{sha256[:16]}-{name or 'archive'}"
    if archive.is_file() and file_digest(archive) == sha256:
        return archive
    # One process at a time: the next one finds the archive, and overwrites what a killed one left.
    locks = cache / "locks"
    locks.mkdir(exist_ok=True)
    waiting = f"waiting for another process that downloads {url}"
    with exclusive_lock(locks / archive.name, waiting, progress):
        if not (archive.is_file() and file_digest(archive) == sha256):
            _download(url, sha256, archive, source, progress)
    return archive


def _download(url: str, sha256: str, archive: Path, source: str, progress: Say) -> None:
    progress(f"downloading {url}")
    partial = archive.with_name(archive.name + ".partial")
    try:
        download(url, partial)
        actual = file_digest(partial)
        if actual != sha256:
            raise UserError(
                f"{url} has the SHA-256 {actual}, {source} says {sha256}",
                f"do not use the archive unless you know why it changed; then correct sha256 in {source}",
            )
        partial.rename(archive)
    finally:
        partial.unlink(missing_ok=True)


def unpack(archive: Path, into: Path, confined: bool = False) -> Path:
    """Unpack to `into`; a single top-level folder, as in most releases, becomes `into`.

    Args:
        confined: refuse links that lead out of the tree.

    Raises:
        UserError: it is no archive, is damaged, or has devices, pipes or such links.
    """
    scratch = into.with_name(into.name + ".unpacking")
    scratch.mkdir(parents=True)
    try:
        with archive.open("rb") as file:
            is_zip = file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")  # a tar may end with a zip
        if is_zip:
            _unpack_zip(archive, scratch)
        else:
            # GNU tar knows every compression and refuses absolute names and "..".
            options = ["--extract", "--no-same-owner", "--no-same-permissions"]
            command = ["tar", *options, "--file", str(archive), "--directory", str(scratch)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace")
            if done.returncode != 0:
                raise UserError(f"cannot unpack {archive}: {done.stderr.strip()[-200:]}", "use a tar or zip archive")
        _require_plain(archive, scratch, confined)
        entries = list(scratch.iterdir())
        top = entries[0] if len(entries) == 1 and entries[0].is_dir() and not entries[0].is_symlink() else scratch
        top.rename(into)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return into


def _require_plain(archive: Path, tree: Path, confined: bool) -> None:
    root = tree.resolve()
    for path in tree.rglob("*"):
        mode = path.lstat().st_mode
        name = path.relative_to(tree)
        if stat.S_ISLNK(mode):
            if confined and not path.resolve().is_relative_to(root):
                raise UserError(f"{archive} has the link {name}, which leads out of it", "pack the files themselves")
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UserError(f"{archive} has {name}, which is no file, directory or link", "pack files only")


def _unpack_zip(archive: Path, into: Path) -> None:
    remedy = "use a tar or zip archive that unzip -t accepts"
    try:
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                written = Path(file.extract(member, into))
                mode = member.external_attr >> 16 & 0o777  # of Unix; zipfile itself leaves it out
                if mode and written.is_file():
                    written.chmod(mode | 0o600)
    # Damaged archives raise many exceptions: RuntimeError for encryption, NotImplementedError for a compression.
    except (zipfile.BadZipFile, zlib.error, ValueError, EOFError, RuntimeError, struct.error, lzma.LZMAError) as error:
        raise UserError(f"cannot unpack {archive}: {error}", remedy) from None
    except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
        problem = f"it has a file and a directory of one name, {error.filename}"
        raise UserError(f"cannot unpack {archive}: {problem}", remedy) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise UserError(f"cannot unpack {archive}: {error}", remedy) from None  # bz2's of a damaged stream
