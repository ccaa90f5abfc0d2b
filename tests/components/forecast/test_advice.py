"""What a forecast says to do."""

from __future__ import annotations

import pytest

from components.forecast.advice import advise
from components.forecast.types import Change, Forecast, LinkedForecast, ObjectsForecast


def make(
    percent: float,
    margin: float = 0,
    discardable: float = 40,
    language: str = "c++",
    linked: bool = True,
    policy: float | None = None,
    compiled: int = 9,
    failed: int = 0,
) -> Forecast:
    sizes_by = [round(1000 * (100 + change)) for change in (percent if policy is None else policy, percent)]
    change = Change(stock=100_000, policy=sizes_by[0], release=sizes_by[1])
    objects = ObjectsForecast(modules=compiled, text=change, machine_code=change, unwind=change)
    sizes = LinkedForecast(bytes=change, machine_code=change, unwind=change, names=Change(), margin=margin)
    return Forecast(
        modules=20,
        failed={f"{number}.o": "error" for number in range(failed)},
        seed=0,
        compile_s=1,
        functions=9,
        discardable_percent=discardable,
        unwind_percent=10,
        decisions=9,
        departures=1,
        objects=objects,
        languages={language: objects},
        linked=sizes if linked else None,
    )


@pytest.mark.parametrize(
    ("forecast", "said", "unsaid"),
    [
        (
            make(-9.2),
            [
                "about 9% smaller than stock clang's -Oz does (80% interval -10.7 to -7.7%)",
                "build it with the release clang",
                "mlgo tune",
            ],
            "no gain",
        ),
        (make(-19, policy=-2), ["about 19% smaller", "its policy alone -2.0%", "mlgo shrink also"], "mlgo tune"),
        (make(-2.2), ["about 2% smaller", "build it with", "mlgo shrink also"], "mlgo tune"),
        (make(-0.4), ["no gain expected", "(-0.4%)", "mlgo shrink"], "only 40%"),
        (
            make(0.2, discardable=4, language="c"),
            ["no gain expected", "only 4% of the text", "trainings on C"],
            "build it",
        ),
        (make(0.2, discardable=4), ["no gain expected", "only 4% of the text"], "trainings on C"),
        (
            make(2.4),
            ["about 2% larger than stock clang's -Oz does (80% interval +0.9 to +3.9%)", "do not use it as it is"],
            "build it with",
        ),
        (make(-6, margin=8), ["nothing certain", "(80% interval -14.0 to +2.0%)", "more --seconds"], "build it"),
        (
            make(-6, margin=2),
            ["about 6% smaller than stock clang's -Oz does (80% interval -8.0 to -4.0%)"],
            "nothing certain",
        ),
        (
            make(-12, compiled=3),
            ["nothing certain: -12.0% against stock clang's -Oz, of 3 of 20 modules", "more --seconds"],
            "smaller",
        ),
        (make(-12, compiled=3, linked=False), ["nothing certain"], "smaller"),
        (
            make(-12, compiled=5, failed=15),
            ["nothing certain", "build the project", "15 of the 20", "(75%)"],
            "smaller",
        ),
        (
            make(-12, compiled=9, failed=1),
            ["about 12% smaller", "1 of the 10 modules that were tried (10%)"],
            "nothing",
        ),
        (
            make(-9.2, compiled=20),
            ["about 9% smaller than stock clang's -Oz does (90% interval -10.7 to -7.7%)"],
            "80%",
        ),
        (make(-6, linked=False), ["makes the text of its objects about 6% smaller"], "this program"),
    ],
)
def test_advice_follows_the_forecast(forecast: Forecast, said: list[str], unsaid: str) -> None:
    text = "\n".join(advise(forecast))
    assert all(words in text for words in said), text
    assert unsaid not in text.replace("train on this code", "")
    first, *others = advise(forecast)
    assert first.startswith("forecast: ") and "stock clang's -Oz" in first
    assert any(line.startswith("mlgo shrink measures against your own build; its row stock") for line in others)
