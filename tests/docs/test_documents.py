"""Tests that the documents agree with the tree: links, sections that code names, goals, the index."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from components.platform.processes.sandbox import RULES
from tests.bench.goals import GOALS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [ROOT / "README.md", *DOCS.rglob("*.md"), *ROOT.glob("components/**/*.md"), *ROOT.glob(".github/**/*.md")]
)
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _CODE_BLOCK.sub("", page.read_text()), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in texts}


def links(page: Path) -> list[str]:
    return ["".join(groups) for groups in _LINK.findall(_CODE_BLOCK.sub("", page.read_text()))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_paths_in_documents_exist() -> None:
    """Paths begin at the root or below components/; names in capitals and x stand for others."""
    missing = []
    for page in PAGES:
        for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", page.read_text()):
            first = name.partition("/")[0]
            if first in ("runs", "build"):  # what the documents' commands write
                continue
            roots = [root for root in (ROOT, ROOT / "components") if (root / first).is_dir()]
            if roots and not re.search(r"[A-Z]{4}|/x/", name) and not any((root / name).exists() for root in roots):
                missing.append(f"{page.name}: {name}")
    assert missing == []


def test_names_in_the_tables_of_architecture_occur_in_the_code() -> None:
    rows = [line for line in (DOCS / "architecture.md").read_text().splitlines() if line.startswith("|")]
    names = {name for row in rows for name in re.findall(r"`(\w*[a-z]_[a-z]\w*|[A-Z][a-z]+[A-Z]\w*|_[a-z]\w*)`", row)}
    assert {"attribute_savings", "SubmitOptions"} <= names
    files = [path for suffix in ("py", "cpp", "h", "yaml") for path in ROOT.glob(f"components/**/*.{suffix}")]
    code = "\n".join(path.read_text() for path in [*files, *ROOT.glob("pipelines/**/*.py")])
    assert sorted(names - set(re.findall(r"\w+", code))) == []


def test_index_and_readme_lead_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in links(DOCS / "index.md")}
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= linked
    assert "docs/index.md" in links(ROOT / "README.md")


def test_readme_has_at_most_900_words() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= 900


def named_sections() -> list[tuple[str, str]]:
    """Return the pages and sections that code and model cards name: docs/PAGE.md, "SECTION"."""
    named = set()
    for folder in ("components", "pipelines", "tests", "docker", "k8s"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix in (".py", ".md", ".gin", ".cpp", ".h", ".yaml") and file != Path(__file__):
                text = re.sub(r"\s*\n\s*(#|//)?\s*", " ", file.read_text())
                named |= set(re.findall(r"docs/([\w/-]+\.md), \"([^\"]+)\"", text))
    return sorted(named)


@pytest.mark.parametrize(("page", "section"), named_sections())
def test_sections_that_code_names_exist(page: str, section: str) -> None:
    text = (DOCS / page).read_text()
    assert re.search(rf"^#+ {re.escape(section)}$|\*\*{re.escape(section)}\.?\*\*", text, re.MULTILINE)


def test_pages_that_code_names_exist() -> None:
    named = set()
    for folder in ("components", "pipelines", "tests", "docker", "k8s", ".ci", ".github"):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and file.suffix not in (".npz", ".pyc", ".so"):
                named |= set(re.findall(r"docs/[\w/-]+\.md", file.read_text(errors="replace")))
    named.discard("docs/PAGE.md")  # of this file
    assert {page for page in named if not (ROOT / page).exists()} == set()


def test_performance_has_every_goal_and_marks_what_misses_it() -> None:
    figure, bound = r"([\d.,]+)(?: (\*\*missed\*\*))?", r"(<=|>=) ([\d.]+)"
    row = re.compile(rf"^\| `(\w+)` \|[^|]+\| {figure} \| {bound} \| (.+) \|$", re.MULTILINE)
    rows = {key: rest for key, *rest in row.findall((DOCS / "performance.md").read_text())}
    assert sorted(rows) == sorted(goal.key for goal in GOALS)
    for goal in GOALS:
        measured, missed, sign, value, elsewhere = rows[goal.key]
        assert (sign, float(value), elsewhere) == (goal.sign, goal.value, goal.elsewhere), goal.key
        assert bool(missed) == (not goal.met(float(measured.replace(",", "")))), goal.key


def literals() -> set[str]:
    """Return the texts in the Python code of the steps and pipelines, with … for each value in them."""
    texts = set()
    for folder in ("components", "pipelines"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                    texts.add("".join(map(str, parts)))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.add(node.value)
    return texts


def test_messages_of_troubleshooting_occur_in_the_code() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| .+ \|$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    texts = literals()
    assert len(rows) >= 30
    assert [message for message in rows if not any(text.startswith(message) for text in texts)] == []


def test_commands_of_the_tutorial_are_those_that_tests_run() -> None:
    """test_build_systems.py runs the commands of own-code.md as they stand there."""
    tutorial = (DOCS / "install.md").read_text().split("\n## Tutorial\n")[1]
    blocks = re.findall(r"^```shell\n(.*?)^```", tutorial, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    built = [line for line in lines if line.startswith(("(cd", "mlgo corpus extract", "mlgo evaluation"))]
    run = (DOCS / "own-code.md").read_text().splitlines()
    assert len(built) == 4 and set(built) <= set(run)
    assert {line.split("-j")[0] for line in lines if "shrink" in line} <= {line.split("-j")[0] for line in run}


def test_commands_that_replace_those_of_ml_compiler_opt_exist() -> None:
    page = (DOCS / "ml-compiler-opt.md").read_text()
    reference = (DOCS / "reference.md").read_text()
    options = {
        heading: set(re.findall(r"^\| `(--[a-z0-9-]+)", text, re.MULTILINE))
        for heading, _, text in (part.partition("`") for part in reference.split("\n## `mlgo ")[1:])
    }
    # `mlgo evaluation --x` is `mlgo evaluation run --x`.
    options |= {"evaluation": options["evaluation run"]}
    unknown = []
    for command in re.findall(r"`mlgo ([a-z][^`]*)`", page):
        words = command.split()
        name = " ".join(words[:2]) if " ".join(words[:2]) in options else words[0]
        if name not in options and not any(known.startswith(f"{name} ") for known in options):
            unknown.append(command)
        unknown += [word for word in words if word.startswith("--") and word not in options.get(name, {word})]
    assert unknown == []


def test_security_page_lists_the_rules_of_the_sandbox() -> None:
    rows = [f"| {rule.subject} | {rule.promise} | {'yes' if rule.always else 'no'} |" for rule in RULES]
    assert "\n".join(rows) in (DOCS / "security.md").read_text()


def test_each_promise_about_security_has_a_test_that_exists() -> None:
    text = (DOCS / "security.md").read_text()
    files = [*(ROOT / "tests").glob("**/test_*.py")]
    functions = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in files), re.MULTILINE))
    named = set(re.findall(r"`(test_\w+(?:\.py)?)`", text))
    assert named <= {*functions, *(path.name for path in files)}
    promises = re.findall(r"^\| (?!promise|---).* \| (.*) \|$", text.split("Compiles, links")[0], re.MULTILINE)
    assert len(promises) >= 6 and all("`test_" in tests for tests in promises)
