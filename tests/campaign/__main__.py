"""`python -m tests.campaign`: builds random programs by many rows, and compares what they print with -O0."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

import click

from tests.campaign.build import Builder, Finding, write_program
from tests.campaign.csmith import generate_csmith
from tests.campaign.generate import generate
from tests.campaign.program import Program
from tests.campaign.reduce import reduce_program
from tests.campaign.rows import ROWS, Row, sample_rows, select_rows

RESULTS = "results.jsonl"
GENERATORS: dict[str, Callable[[int, str | None], Program]] = {
    "nearly-equal": generate,
    "csmith": lambda seed, only: generate_csmith(seed),
}
bin_option = click.option(
    "--bin",
    "bin_directory",
    type=click.Path(exists=True, path_type=Path),
    required=True,
    help="bin of a release clang.",
)
generator_option = click.option("--generator", type=click.Choice(list(GENERATORS)), default="nearly-equal")
only_option = click.option(
    "--only", help="Function of tests/campaign/kinds whose families alone are taken, or several."
)


@click.group(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
def main() -> None:
    """Programs of nearly equal functions (or of Csmith), compared with -O0.

    \b
    Example:
      python -m tests.campaign run --bin build/release/bin --seeds 0:300 --output campaign
      python -m tests.campaign report campaign
      python -m tests.campaign show 17 --output program17
      python -m tests.campaign reduce 17 lto --bin build/release/bin --output reduced17
    """


@main.command()
@bin_option
@generator_option
@only_option
@click.option("--rows", default="usual", help=f"Comma-separated: usual, all, a64, or rows ({', '.join(ROWS)}).")
@click.option("--sample", type=int, help="Of --rows, take the usual ones and so many others, drawn for each program.")
@click.option("--seeds", default="0:100", help="First seed, and the one after the last.")
@click.option("--jobs", type=click.IntRange(1), default=1)
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), required=True, help="Resumed if it exists.")
@click.option("--minutes", type=float, help="Start no program after this time.")
def run(
    bin_directory: Path,
    generator: str,
    only: str | None,
    rows: str,
    sample: int | None,
    seeds: str,
    jobs: int,
    output: Path,
    minutes: float | None,
) -> None:
    """Build and run programs; write a line of JSON for each, and keep the files of those with a finding."""
    try:
        chosen = select_rows(rows)
        first, last = (int(bound) for bound in seeds.split(":"))
    except KeyError as error:
        raise click.UsageError(f"there is no row {error}; the rows are {', '.join(ROWS)}") from None
    except ValueError:
        raise click.UsageError(f"--seeds {seeds!r} is not FIRST:LAST") from None
    output.mkdir(parents=True, exist_ok=True)
    done = {result["seed"] for result in read_results(output)}
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    ended = time.monotonic() + minutes * 60 if minutes else None
    started, finished, failing = time.monotonic(), 0, 0
    waiting = iter([seed for seed in range(first, last) if seed not in done])
    running: set[Future[dict[str, object]]] = set()
    with ThreadPoolExecutor(jobs) as pool, (output / RESULTS).open("a") as results:

        def start() -> None:
            if ended is None or time.monotonic() < ended:
                for seed in waiting:
                    some = chosen if sample is None else sample_rows(chosen, seed, sample)
                    running.add(pool.submit(check_seed, seed, generator, only, some, bin_directory.absolute(), output))
                    break

        for _ in range(jobs):
            start()
        while running:
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                result = future.result()
                results.write(json.dumps(result) + "\n")
                results.flush()
                finished += 1
                states = result["states"]
                assert isinstance(states, dict)
                for row, state in states.items():
                    counts[row][state] += 1
                findings = result["findings"]
                assert isinstance(findings, list)
                failing += any(not finding["stock"] for finding in findings)
                for line in describe(findings):
                    click.echo(f"{result['seed']} {line}")
                if finished % 20 == 0:
                    speed = (time.monotonic() - started) / finished
                    click.echo(f"{finished} programs, {failing} with findings, {speed:.2f} s each", err=True)
                start()
    for row in chosen:
        click.echo(
            f"{row.name:24} " + ", ".join(f"{state} {count}" for state, count in sorted(counts[row.name].items()))
        )
    click.echo(f"{finished} programs in {time.monotonic() - started:.0f} s, {failing} with findings")
    sys.exit(1 if failing else 0)


def describe(findings: list[dict[str, str]]) -> list[str]:
    """Return a line for each problem, with the rows that have it."""
    groups: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for finding in findings:
        groups[finding["problem"], finding["label"], finding["stock"]].append(finding)
    return [
        f"{problem} {label} by {' '.join(f['row'] for f in same)}{f' (as by {stock})' if stock else ''}: "
        f"{same[0]['detail'].splitlines()[-1][:150]}"
        for (problem, label, stock), same in groups.items()
    ]


def check_seed(
    seed: int, generator: str, only: str | None, rows: list[Row], bin_directory: Path, output: Path
) -> dict[str, object]:
    """Return the line of results for a seed."""
    started = time.monotonic()
    program: Program = GENERATORS[generator](seed, only)
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as temporary:
        directory = Path(temporary) / "program"
        write_program(program, directory)
        states, findings = Builder(program, bin_directory, directory).check(rows)
        if findings:
            kept = output / f"seed{seed}"
            shutil.rmtree(kept, ignore_errors=True)
            write_program(program, kept)
            (kept / "flags.json").write_text(json.dumps({"flags": program.flags, "libraries": program.libraries}))
            (kept / "findings.json").write_text(json.dumps([asdict(f) for f in findings], indent=1))
    return {
        "seed": seed,
        "kinds": program.kinds,
        "states": states,
        "findings": [asdict(f) for f in findings],
        "seconds": round(time.monotonic() - started, 2),
    }


def read_results(output: Path) -> Iterator[dict[str, object]]:
    """Yield the results of a campaign; a line that was cut off is left out."""
    path = output / RESULTS
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


@main.command()
@click.argument("output", type=click.Path(exists=True, path_type=Path))
def report(output: Path) -> None:
    """Group the findings of a campaign by kind and problem."""
    groups: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    programs, states = 0, defaultdict(Counter)  # type: ignore[var-annotated]
    details: dict[tuple[str, str], str] = {}
    for result in read_results(output):
        programs += 1
        for row, state in result["states"].items():  # type: ignore[attr-defined]
            states[row][state] += 1
        for entry in result["findings"]:  # type: ignore[attr-defined]
            finding = Finding(**entry)
            kind = ",".join(sorted({label.split(".")[0] for label in finding.label.split(" ")})) or "?"
            if not finding.label:
                kind = finding.detail.splitlines()[-1][:100] if finding.problem != "text" else "code"
            kind += ", as by stock tools" if finding.stock else ""
            groups[kind, finding.problem][finding.row].append(result["seed"])  # type: ignore[arg-type]
            details.setdefault((kind, finding.problem), finding.detail[:300])
    click.echo(f"{programs} programs")
    for row, counter in states.items():
        click.echo(f"  {row:24} " + ", ".join(f"{state} {count}" for state, count in sorted(counter.items())))
    for (kind, problem), rows in sorted(groups.items()):
        click.echo(f"\n{kind}: {problem}: {details[kind, problem]}")
        for row, seeds in rows.items():
            click.echo(f"    {row:24} {len(seeds):4}: {' '.join(map(str, seeds[:8]))}")


@main.command()
@click.argument("seed", type=int)
@generator_option
@only_option
@click.option("--output", type=click.Path(path_type=Path), required=True)
def show(seed: int, generator: str, only: str | None, output: Path) -> None:
    """Write the program of a seed."""
    program = GENERATORS[generator](seed, only)
    write_program(program, output)
    for name, flags in program.flags.items():
        click.echo(f"{name}: {' '.join(flags)}")


@main.command("reduce")
@click.argument("seed", type=int)
@click.argument("row", type=click.Choice(list(ROWS)))
@bin_option
@generator_option
@only_option
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Directory of the smaller program.")
def reduce_command(seed: int, row: str, bin_directory: Path, generator: str, only: str | None, output: Path) -> None:
    """Leave out families, units, files, flags and lines of a program while the row still finds the same problem."""
    program = GENERATORS[generator](seed, only)
    smaller, finding = reduce_program(program, ROWS[row], bin_directory.absolute())
    if finding is None:
        raise click.ClickException(f"program {seed} does what -O0 does by row {row}")
    shutil.rmtree(output, ignore_errors=True)
    write_program(smaller, output)
    for name, flags in smaller.flags.items():
        click.echo(f"{name}: {' '.join(flags)}")
    click.echo(f"{finding.problem} {finding.label} {finding.detail}")


if __name__ == "__main__":
    main()
