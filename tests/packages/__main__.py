"""`python -m tests.packages`: shrinks Debian packages that have tests, and tests what is delivered."""

from __future__ import annotations

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import click
import msgspec

from components.core.projects.source_tree import SourceTree
from components.platform.errors import UserError
from components.platform.processes.build_tools import CommandTimeout, run_logged
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.downloads.debsource import download_deb_source, fetch_deb_source
from components.shrink.rows import OWN, STOCK
from components.shrink.step import FILES
from components.shrink.tests_of_build import failed_tests, find_tests
from components.shrink.types import ShrinkReport
from tests.packages.catalog import PACKAGES, Package

CSV = Path(__file__).parents[2] / "docs" / "examples" / "packages.csv"
ROWS = ("program", "objects", "gcc-Os", "gcc-Oz", "clang-22", STOCK)
_MAX_OWN_S, _MAX_S = 240.0, 1500.0
"""Time limits of the user's own build with its tests, and of a package; a package that exceeds one has no line."""
_MAX_REPLACED_S = 40.0
"""Packages whose own build and tests take longer are not tested with the delivered files in place."""
_JOBS = 1
_COUNTS = (
    # Each pattern finds the numbers of passed and of failed tests; those of all matches are added.
    re.compile(r"^# PASS:\s+(?P<passed>\d+)[\s\S]*?^# FAIL:\s+(?P<failed>\d+)", re.MULTILINE),  # Automake
    re.compile(r"tests passed, (?P<failed>\d+) tests failed out of (?P<all>\d+)"),  # ctest
    re.compile(r"^Ok:\s+(?P<passed>\d+)[\s\S]*?^Fail:\s+(?P<failed>\d+)", re.MULTILINE),  # Meson
    re.compile(r"^\[  PASSED  \] (?P<passed>\d+) test", re.MULTILINE),  # GoogleTest
)


@dataclass
class Line:
    """A line of the table. Sizes are bytes of loaded sections, 0 where a row was not built or failed.

    Attributes:
        lto: who builds the package without LTO, as the catalog says.
        check: how the builds were checked.
        tests: the tests of the own build: numbers of passed and failed ones where their runner says them.
        sizes: by the names of ROWS.
        delivered: the smallest row that works.
        replaced: the tests with the delivered files in place of those of the own build: "pass", or those that fail; ""
            if they did not run.
        own_seconds: the own build and its tests. seconds: all builds and tests.
        failures: why rows are not used, by their names.
    """

    package: str
    version: str
    build_system: str
    language: str
    lto: str
    build: str
    check: str
    tests: str
    files: int
    own: int
    sizes: Mapping[str, int]
    delivered: str
    delivered_bytes: int
    replaced: str
    own_seconds: float
    seconds: float
    failures: Mapping[str, str]

    def as_row(self) -> dict[str, str]:
        """Return the line as a row of the CSV."""
        row = {field.name: str(getattr(self, field.name)) for field in fields(self)}
        del row["sizes"]
        for name in ROWS:
            row[name] = str(self.sizes.get(name) or "")
        row["failures"] = "; ".join(f"{name}: {reason}" for name, reason in self.failures.items())
        return row


COLUMNS = (
    *("package", "version", "build_system", "language", "lto", "build", "check", "tests", "files", "own"),
    *(*ROWS, "delivered", "delivered_bytes", "replaced", "own_seconds", "seconds", "failures"),
)


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--release-toolchain", type=click.Path(exists=True, path_type=Path), help="Release clang.")
@click.option("--work", type=click.Path(path_type=Path), help="Directory of sources, logs and delivered files.")
@click.option("--again", is_flag=True, help="Also packages that the CSV has.")
@click.option("--summary", is_flag=True, help="Print counts and sums of the CSV, and run nothing.")
@click.option("--install", is_flag=True, help="Install what the builds need, by apt-get build-dep.")
@click.option("--output", type=click.Path(path_type=Path), default=CSV, help="The CSV, which gets a line per package.")
@click.argument("names", nargs=-1, metavar="[PACKAGE]...")
def main(
    release_toolchain: Path | None,
    work: Path | None,
    again: bool,
    summary: bool,
    install: bool,
    output: Path,
    names: Sequence[str],
) -> None:
    """Shrink Debian packages, and write docs/examples/packages.csv.

    Each package of the catalog, or each PACKAGE, is built by `mlgo shrink` with the rows of all compilers, which are
    checked by the tests of the package. Then the own build is tested once more with the delivered files in place of its
    own. A run goes on where an earlier one ended.

    \b
    Example:
      python -m tests.packages --release-toolchain build/clang --work /tmp/packages zlib serd
    """
    if summary:
        click.echo(summarize(list(_read(output).values())))
        return
    if release_toolchain is None or work is None:
        raise click.UsageError("--release-toolchain and --work are missing")
    work = work.absolute()
    packages = {package.name: package for package in PACKAGES}
    unknown = set(names) - packages.keys()
    if unknown:
        raise click.UsageError(f"not in tests/packages/catalog.py: {', '.join(sorted(unknown))}")
    dropped: dict[str, str] = {}
    for package in [packages[name] for name in names or packages]:
        rows = _read(output)
        if package.name in rows and not again:
            continue
        try:
            line = shrink_package(package, release_toolchain.absolute(), work, install)
        except UserError as error:
            dropped[package.name] = error.problem
            click.echo(f"{package.name}: dropped: {error.problem}", err=True)
            continue
        rows = _read(output)  # another run may have written it
        rows[package.name] = line.as_row()
        _write(output, rows)
        click.echo(
            f"{package.name}: {line.tests}; {line.own:,} → {line.delivered_bytes:,} by {line.delivered}; "
            f"in place: {line.replaced}; {line.seconds:.0f} s; {dict(line.failures) or 'all rows work'}"
        )
    if dropped:
        click.echo(f"dropped: {', '.join(dropped)}", err=True)
        sys.exit(1)


def summarize(rows: Sequence[Mapping[str, str]]) -> str:
    """Return counts of packages, and the change of all their loaded bytes by each row where it works."""
    lines = [f"{len(rows)} packages; {sum(row['replaced'] == 'pass' for row in rows)} tested with the delivered files"]
    for column in ("build_system", "language", "delivered"):
        counts = Counter(row[column] for row in rows)
        lines.append(f"{column}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}")
    systems = {row["build_system"] for row in rows}
    for name, chosen in [("all", rows), *((one, [r for r in rows if r["build_system"] == one]) for one in systems)]:
        changes = [f"delivered {_change(chosen, 'delivered_bytes')}"]
        changes += [f"{row} {_change(chosen, row)}" for row in ROWS if any(one[row] for one in chosen)]
        lines.append(f"{name}, {len(chosen)}: {sum(int(one['own']) for one in chosen):,} bytes; {', '.join(changes)}")
    lines += [f"{row['package']}: {row['failures']}" for row in rows if row["failures"]]
    return "\n".join(lines)


def _change(rows: Sequence[Mapping[str, str]], column: str) -> str:
    """Return the change of the sum against the own builds, and the mean change, over the packages that have it."""
    pairs = [(int(row["own"]), int(row[column])) for row in rows if row[column]]
    own, other = (sum(one) for one in zip(*pairs, strict=True))
    mean = sum(after / before for before, after in pairs) / len(pairs)
    return f"{100 * (other / own - 1):+.1f}% in sum, {100 * (mean - 1):+.1f}% in the mean of {len(pairs)}"


def _read(path: Path) -> dict[str, dict[str, str]]:
    if not path.exists():
        return {}
    with path.open(newline="") as lines:
        return {row["package"]: row for row in csv.DictReader(lines)}


def _write(path: Path, rows: Mapping[str, Mapping[str, str]]) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[name] for name in sorted(rows))
    temporary.replace(path)


def shrink_package(package: Package, toolchain: Path, work: Path, install: bool) -> Line:
    """Fetch, shrink and test a package.

    Raises:
        UserError: it cannot be fetched, or its own build fails or takes too long.
    """
    tree = work / "source" / package.name
    if not tree.exists():
        fetch_deb_source(package.name, default_cache_dir(), tree)
    if install:
        _install_dependencies(tree)
    out = work / "delivered" / package.name
    own_s, seconds = _shrink(package, tree, toolchain, out, work / "logs" / f"{package.name}.log")
    report = msgspec.json.decode((out / "shrink.json").read_bytes(), type=ShrinkReport)
    builds = {build.name: build for build in report.builds}
    own_log = _log_of(tree, OWN)
    slow = own_s > _MAX_REPLACED_S
    replaced = "" if slow else _test_delivered(package, tree, out / FILES, report, work)
    return Line(
        package=package.name,
        version=_version(package.name),
        build_system="debian/rules" if "debian/rules" in report.command else package.system,
        language=package.language,
        lto=package.without_lto,
        build=report.command,
        check=report.checked,
        tests=_describe_tests(own_log, report.checked),
        files=len(report.kinds),
        own=builds[OWN].loaded,
        sizes={name: build.loaded for name, build in builds.items()},
        delivered=report.chosen,
        delivered_bytes=builds[report.chosen].loaded,
        replaced=replaced,
        own_seconds=round(own_s, 1),
        seconds=round(seconds, 1),
        failures={name: build.failure.splitlines()[0] for name, build in builds.items() if build.failure},
    )


def _log_of(tree: Path, build: str) -> str:
    """Return the log of one of shrink's builds."""
    path = default_cache_dir() / "logs" / "shrink" / f"{SourceTree(tree).unique_name}-{build}.log"
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _version(name: str) -> str:
    description = download_deb_source(name, default_cache_dir())[0]
    match = re.search(r"^Version: (\S+)", description.read_text(errors="replace"), re.MULTILINE)
    return match[1] if match else ""


def _install_dependencies(tree: Path) -> None:
    """Install what the build needs.

    Raises:
        UserError: apt-get cannot.
    """
    command = [
        "apt-get",
        "-q",
        "-y",
        "--no-install-recommends",
        "--arch-only",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-P",
        "nodoc",
        "build-dep",
        f"{tree}/",
    ]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise UserError(f"apt-get build-dep {tree} fails: {done.stderr.strip()}", "install the packages by hand")


def _shrink(package: Package, tree: Path, toolchain: Path, out: Path, log: Path) -> tuple[float, float]:
    """Run `mlgo shrink`, and return the seconds of the own build and of all.

    Raises:
        UserError: it fails, or exceeds a time limit.
    """
    command = [sys.executable, "-u", "-m", "components.shrink", "--source", str(tree)]
    command += ["--release-toolchain", str(toolchain), "--output", str(out), "--jobs", str(_JOBS)]
    command += ["--check", package.check] if package.check else []
    command += [] if package.other_compilers else ["--no-other-compilers"]
    command += [package.build] if package.build else []
    log.parent.mkdir(parents=True, exist_ok=True)
    started, own_s, last = time.monotonic(), 0.0, ""
    with log.open("w") as written:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL
        )
        timers = [threading.Timer(_MAX_S, process.terminate), threading.Timer(_MAX_OWN_S, process.terminate)]
        for timer in timers:
            timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            last = line.strip() or last
            written.write(f"{time.monotonic() - started:7.1f} {line}")
            written.flush()
            if line.startswith(f"{OWN}: "):
                own_s = time.monotonic() - started
                timers[1].cancel()
        status = process.wait()
        for timer in timers:
            timer.cancel()
    seconds = time.monotonic() - started
    if status in (-signal.SIGTERM, 128 + signal.SIGTERM):
        raise UserError(f"{'the own build' if not own_s else 'shrink'} did not end in {seconds:.0f} s", f"see {log}")
    if status != 0:
        raise UserError(f"mlgo shrink ends with status {status}: {last}", f"see {log}")
    return own_s, seconds


def _describe_tests(log: str, checked: str) -> str:
    """Return the results of the tests in a log: "12 pass, 1 fails"."""
    for pattern in _COUNTS:
        if found := list(pattern.finditer(log)):
            numbers = [{name: int(value) for name, value in match.groupdict().items()} for match in found]
            failed = sum(one.get("failed", 0) for one in numbers)
            passed = sum(one["passed"] if "passed" in one else one["all"] - one["failed"] for one in numbers)
            return f"{passed} pass" + (f", {failed} fail" if failed else "")
    if checked.endswith("passes"):
        return "pass"
    return "no test runs" if "with --version" in checked else "some fail"


def _test_delivered(package: Package, tree: Path, files: Path, report: ShrinkReport, work: Path) -> str:
    """Test the own build with the delivered files in place of its own; return "pass", or what fails."""
    if report.chosen == OWN:
        return ""
    log = work / "logs" / f"{package.name}-replaced.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="packages-") as temporary:
        root = Path(temporary) / tree.name
        SourceTree(tree).copy(root, ())
        environment = {"JOBS": str(_JOBS)}
        try:
            if run_logged(["sh", "-c", report.command], root, log, environment, timeout_s=_MAX_OWN_S) != 0:
                return "the own build fails"
            check = package.check
            if not check:
                tests = find_tests(root, report.command, log, environment)
                if tests is None or tests.ran_by_build:
                    return "no tests that run after the build"
                check = tests.command
            before = _run_tests(check, root, log, environment)
            for name in report.kinds:
                _replace(files / name, root / name)
            after = _run_tests(check, root, log, environment)
        except CommandTimeout as error:
            return f"{error} did not end"
    if after[0] == 0 or (before[0] != 0 and after[1] <= before[1]):
        return "pass"
    return ", ".join(sorted(after[1] - before[1])) or f"status {after[0]}"


def _run_tests(check: str, root: Path, log: Path, environment: Mapping[str, str]) -> tuple[int, frozenset[str]]:
    """Return the exit status, and the names of the tests that fail."""
    start = log.stat().st_size
    status = run_logged(["sh", "-e", "-c", check], root, log, environment, timeout_s=_MAX_OWN_S)
    with log.open("rb") as text:
        text.seek(start)
        return status, failed_tests(text.read().decode("utf-8", "replace"))


def _replace(delivered: Path, own: Path) -> None:
    """Put a delivered file in the place of one of the own build, with its time, so that make does not link it again."""
    status = own.stat()
    own.unlink()
    shutil.copyfile(delivered, own)
    own.chmod(status.st_mode)
    os.utime(own, ns=(status.st_atime_ns, status.st_mtime_ns))


if __name__ == "__main__":
    main()
