"""Debian source packages, fetched with a private apt configuration; the user's apt is neither used nor changed.

The private configuration lives below the cache directory: its sources list is the machine's own for the distribution's
release, with `deb` turned into `deb-src`; package lists and state are separate. Mirrors, proxies, credentials and keys
are the machine's, because only these directories are overridden. Root is not needed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.digests import file_digest
from components.platform.storage.downloads.retry import Say
from components.platform.storage.shared_state.file_lock import exclusive_lock

_SOURCE_LISTS = Path("/etc/apt")
_LISTS_MAX_AGE_S = 24 * 3600.0
_TIMEOUT_S = 1800.0
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+~:-]+)?")
"""Name of a source package (Debian Policy 5.6.1), optionally with a version."""


def download_deb_source(package: str, cache: Path, progress: Say = say) -> list[Path]:
    """Download and verify a source package; return its .dsc first, then the archives that the .dsc lists.

    apt verifies the .dsc against the signed index; each archive is compared with the SHA-256 in the .dsc, also if it
    was downloaded earlier.

    Args:
        package: name of a source package ("libzstd"), optionally "=version".
        cache: downloads are kept in `cache`/deb/<package> and reused.

    Raises:
        UserError: apt is missing, no such package, no network, an archive differs from its checksum.
    """
    if not PACKAGE.fullmatch(package):
        raise UserError(f"{package!r} is not the name of a Debian source package", "write it as NAME or NAME=VERSION")
    if shutil.which("apt-get") is None:
        raise UserError(
            f"cannot fetch the Debian source package {package}: this machine has no apt-get",
            "use another kind of source (git, url or path), or run this on Debian or Ubuntu",
        )
    folder = cache.absolute() / "deb" / package
    folder.mkdir(parents=True, exist_ok=True)
    with exclusive_lock(cache / ".lock"):  # two processes with the private apt could write the same list
        files = _complete_download(folder)
        if files is None:
            configuration = _configure(cache.absolute() / "apt", progress)
            progress(f"fetching the Debian source package {package}")
            _download(configuration, package, folder, progress)
            _replace_links_by_copies(folder)
            files = _complete_download(folder)
    if files is None:
        raise UserError(
            f"the files that apt fetched for {package} do not match the checksums in its .dsc",
            f"remove {folder} and run this again; if the error persists, the mirror is damaged",
        )
    return files


def fetch_deb_source(package: str, cache: Path, into: Path, progress: Say = say) -> Path:
    """Download a source package and unpack it, with Debian's patches, into the new directory `into`; return `into`.

    Raises:
        UserError: as `download_deb_source`; or dpkg-source is missing or fails.
    """
    if shutil.which("dpkg-source") is None and shutil.which("apt-get"):
        problem = "dpkg-source, which unpacks source packages, is missing"
        raise UserError(problem, "run sudo apt-get install dpkg-dev patch xz-utils")
    description = download_deb_source(package, cache, progress)[0]
    into.parent.mkdir(parents=True, exist_ok=True)
    # --no-check: apt has verified the signature, so the maintainers' keys need not be installed.
    command = ["dpkg-source", "--no-check", "--no-copy", "-x", str(description), str(into.absolute())]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=into.parent)
    if done.returncode != 0:
        shutil.rmtree(into, ignore_errors=True)
        raise UserError(
            f"cannot unpack {description.name}: {_last_line(done.stderr)}",
            f"check free space, install dpkg-dev patch xz-utils, or remove {description.parent} and run this again",
        )
    return into


def _configure(root: Path, progress: Say) -> Path:
    """Write the private apt configuration below `root`, refresh lists older than a day; return the file's path."""
    for name in ("state/lists/partial", "cache/archives/partial", "sources.list.d"):
        (root / name).mkdir(parents=True, exist_ok=True)
    shutil.rmtree(root / "sources.list.d")
    (root / "sources.list.d").mkdir()
    lists = _source_lists()
    if not lists:
        raise UserError(
            f"no apt source of this machine ({_SOURCE_LISTS}) serves the release {_codename()!r}",
            "add the distribution's own archive to apt's sources, or use another kind of source",
        )
    for name, text in lists.items():
        (root / "sources.list.d" / name).write_text(text)
    configuration = root / "apt.conf"
    configuration.write_text(
        f'Dir::State "{root}/state/";\n'
        'Dir::State::status "/var/lib/dpkg/status";\n'
        f'Dir::Cache "{root}/cache/";\n'
        f'Dir::Etc::sourcelist "{root}/none";\n'
        f'Dir::Etc::sourceparts "{root}/sources.list.d";\n'
        # As root, apt would switch to a user who cannot write here, and warn about it.
        'APT::Sandbox::User "";\n'
    )
    fetched = root / "lists-fetched"
    content = "".join(lists.values())
    fresh = fetched.exists() and time.time() - fetched.stat().st_mtime < _LISTS_MAX_AGE_S
    if not fresh or fetched.read_text() != content:
        progress("fetching the list of Debian source packages")
        # By default apt ends with status 0 when it reaches no server, and then finds no package.
        update = ["-o", "APT::Update::Error-Mode=any", "update"]
        _apt(configuration, update, root, "the list of source packages")
        fetched.write_text(content)
    return configuration


def _download(configuration: Path, package: str, folder: Path, progress: Say) -> None:
    """Fetch the newest version; if the mirror lists it but does not have it, the next older one."""
    command = ["source", "--download-only", "--only-source", "--"]
    older: list[str] = []
    try:
        _remove_files(folder)
        _apt(configuration, [*command, package], folder, package)
        return
    except UserError as error:
        # Only in this case: with a network failure an older version would silently change a corpus or a compiler.
        lacks = any(words in error.problem for words in _MISSING_FILE_MESSAGES)
        older = _versions(configuration, package)[1:] if lacks else []
        if not older:
            raise
        first = error
    for version in older:
        with suppress(UserError):
            _remove_files(folder)
            _apt(configuration, [*command, f"{package}={version}"], folder, package)
            progress(f"the mirror does not have the newest {package} that it lists: took version {version}")
            return
    raise first


_MISSING_FILE_MESSAGES = ("404", "File not found")
"""apt's messages about a file that a mirror lists but does not have."""


def _versions(configuration: Path, package: str) -> list[str]:
    """Return the versions of a source package that the lists have, newest first."""
    command = ["apt-cache", "showsrc", "--only-source", "--", package]
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace").stdout

    from debian.deb822 import Deb822  # takes 50 ms, which commands without Debian packages need not wait for
    from debian.debian_support import Version

    versions = {stanza["Version"] for stanza in Deb822.iter_paragraphs(said) if "Version" in stanza}
    return sorted(versions, key=Version, reverse=True)


def _remove_files(folder: Path) -> None:
    for path in folder.iterdir():  # incomplete or damaged, otherwise it would have been used
        path.unlink()


def _apt(configuration: Path, arguments: list[str], cwd: Path, what: str) -> None:
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", "-o", "Acquire::Retries=3", *arguments]
    try:
        done = subprocess.run(
            command, cwd=cwd, env=environment, capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"fetching {what} took more than {_TIMEOUT_S:.0f} s", "check the network") from None
    if done.returncode != 0:
        raise _apt_error(what, done.stderr)


def _apt_error(what: str, stderr: str) -> UserError:
    """Return an error whose remedy names the servers that apt could not read, if there are any."""
    errors = [line for line in stderr.splitlines() if line.startswith("E:")]
    urls = [match[1] for line in errors if (match := re.match(r"E: Failed to fetch (\S+)", line))]
    servers = " and ".join(sorted({urlsplit(url).hostname or "" for url in urls} - {""}))
    network = f"whether this machine reaches {servers}" if servers else "the name of the package, the network"
    return UserError(
        f"apt-get could not fetch {what}: {'; '.join(errors[:3]) or _last_line(stderr)}",
        f"check {network} and apt's proxy settings (apt-config dump | grep -i proxy)",
    )


def _source_lists() -> dict[str, str]:
    """Return the machine's sources lists as deb-src, by file name, without other vendors' suites."""
    codename = _codename()
    lists: dict[str, str] = {}
    for path in [_SOURCE_LISTS / "sources.list", *sorted((_SOURCE_LISTS / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        if path.suffix == ".sources":
            text = "\n\n".join(_stanzas(text, codename))
        elif path.suffix == ".list":
            text = "\n".join(_lines(text, codename))
        else:
            continue
        if text:
            lists[path.name] = text + "\n"
    return lists


def _stanzas(text: str, codename: str) -> Iterator[str]:
    """Yield the deb822 stanzas that serve `codename`, with type deb-src."""
    from debian.deb822 import Deb822

    for stanza in Deb822.iter_paragraphs(text):
        enabled = stanza.get("Enabled", "yes").lower() not in ("no", "false")
        if (
            enabled
            and "Types" in stanza
            and any(_serves(suite, codename) for suite in stanza.get("Suites", "").split())
        ):
            stanza["Types"] = "deb-src"
            yield stanza.dump().rstrip("\n")


def _lines(text: str, codename: str) -> Iterator[str]:
    """Yield the one-line entries that serve `codename`, with type deb-src and without duplicates."""
    seen = set()
    for line in text.splitlines():
        match = re.match(r"\s*deb(?:-src)?\s+((?:\[[^]]*\]\s+)?\S+\s+(\S+).*)", line)
        if match and _serves(match[2], codename) and match[1] not in seen:
            seen.add(match[1])
            yield f"deb-src {match[1]}"


def _serves(suite: str, codename: str) -> bool:
    """Return whether a suite serves `codename`: bookworm, bookworm-updates, apt.llvm.org's llvm-toolchain-bookworm."""
    return suite == codename or suite.startswith((f"{codename}-", f"{codename}/", f"llvm-toolchain-{codename}"))


def _codename() -> str:
    try:
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    except OSError:
        return ""


def _replace_links_by_copies(folder: Path) -> None:
    """Replace the symbolic links that apt makes for a local (file:) mirror by copies, which outlive the mirror."""
    for path in folder.iterdir():
        if path.is_symlink():
            target = path.resolve()
            path.unlink()
            shutil.copyfile(target, path)


def _complete_download(folder: Path) -> list[Path] | None:
    """Return the newest .dsc in `folder` and its archives if all have their checksums, else None."""
    from debian.deb822 import Dsc

    for description in sorted(folder.glob("*.dsc"), key=lambda path: path.stat().st_mtime, reverse=True):
        with open(description, "rb") as stream:
            listed = Dsc(stream).get("Checksums-Sha256", [])
        files = [folder / Path(file["name"]).name for file in listed]
        pairs = zip(files, listed, strict=True)
        if files and all(path.is_file() and file_digest(path) == file["sha256"] for path, file in pairs):
            return [description, *files]
    return None


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
