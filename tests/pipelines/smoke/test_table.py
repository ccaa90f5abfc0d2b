"""The table of the smoke test."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

from pipelines.smoke.rows import TABLE_HEADING, Row, StepChecks
from pipelines.smoke.table import time_between_steps, waits_s, write_table

STEPS = [
    StepChecks("training", 1030.0, 1040.0, [Row("root", "fails", "403 <b>Forbidden</b> | a_b", "ask `root`", 0.25)]),
    StepChecks("toolchain", 1000.0, 1010.0, [Row("image", "works", "mlgo-toolchain")]),
    StepChecks("ray", 1001.0, 1500.0, [Row("RayJob of one pod", "not tried", "no KubeRay")]),
    StepChecks("report", 1070.0, 1070.0, []),
]


def test_time_between_steps_is_from_end_to_beginning() -> None:
    assert waits_s(STEPS) == {"training": 20.0, "report": 30.0}, "ray runs beside them"
    assert time_between_steps(STEPS) == "25 s on average: 20 s before training, 30 s before report"
    retry = StepChecks("retry", 1520.0, 1530.0, [])
    late = StepChecks("report", 1540.0, 1540.0, [])
    assert waits_s([*STEPS[:3], retry, late]) == {"training": 20.0, "retry": 20.0, "report": 10.0}, (
        "retry waits for ray"
    )
    early = StepChecks("report", 1039.0, 1039.0, [])
    assert waits_s([*STEPS[:2], early])["report"] == 0.0, "the clocks of two nodes differ"


def test_table_says_what_works_and_what_to_do(tmp_path: Path) -> None:
    lines = write_table(tmp_path, STEPS)
    assert lines == [
        f"{TABLE_HEADING}of 3 checks 1 work, 1 fail, 1 were not tried",
        "works      image (toolchain): mlgo-toolchain",
        "fails      root (training): 403 <b>Forbidden</b> | a_b",
        "             remedy: ask `root`",
        "not tried  RayJob of one pod (ray): no KubeRay",
    ]
    figures = json.loads((tmp_path / "summary.json").read_text())
    assert figures == {"works": 1, "fails": 1, "not_tried": 1, "seconds_between_steps": 25.0}


def test_markdown_and_page_escape_what_servers_say(tmp_path: Path) -> None:
    write_table(tmp_path, STEPS)
    rows = [line for line in (tmp_path / "table.md").read_text().splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| training | root | fails | 403 \\<b\\>Forbidden")
    assert rows[2].replace("\\|", "").count("|") == 6, "no cell is split"
    tags: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attributes: object) -> None:
            tags.append(tag)

    Tags().feed((tmp_path / "table.html").read_text())
    assert tags.count("tr") == 4 and "b" not in tags
