"""The page is one file that loads nothing, shows the model's numbers, and is safe whatever columns are called."""

from __future__ import annotations

import asyncio
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.browser import DESK, PHONE, browser, needs_browser
from harness.models import model_of, opening, rows_and_model
from ppca.html.labels import labels, shortened
from ppca.receiver import PCAModel
from ppca.runtime import Account
from ppca.web.report import duration, opening_lines, percent, size, stage_lines, write_report

VOID = {"meta", "br"}


def counters(rounds: int, sent: int, seconds: float = 0.5) -> dict[str, Any]:
    numbers = dict.fromkeys(
        ("bytes_received", "messages_sent", "messages_received", "header_bytes_sent", "header_bytes_received"), 1
    )
    return numbers | {
        "rounds": rounds,
        "bytes_sent": sent,
        "seconds": seconds,
        "sent_to": [0, sent, 0, 0],
        "received_from": [0, 0, sent, 0],
    }


def run_of(stages: dict[str, dict[str, Any]], audit: list[dict[str, Any]] | None = None) -> Account:
    rounds = sum(stage["rounds"] for stage in stages.values())
    sent = sum(stage["bytes_sent"] for stage in stages.values())
    seats = [{"stages": stages, "total": counters(rounds, sent)} for _ in range(4)]
    return Account(2.0, rounds, [sent] * 4, seats, audit or [])


RUN = run_of({"key agreement": counters(1, 64), "eigendecomposition": counters(120, 5_000_000)})


def page_of(tmp_path: Path, model: PCAModel, **changes: Any) -> str:
    options: dict[str, Any] = {"title": "A title", "settings": {"components": 3}, "owners": ["a.csv", "b.csv", "c.csv"]}
    write_report(tmp_path / "report.html", model, RUN, **(options | changes))
    return (tmp_path / "report.html").read_text()


class Balanced(HTMLParser):
    """Collects elements and attributes; every element that is opened must be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 2), (5, 3), (40, 8), (115, 115), (200, 5)])
def test_page_is_well_formed_and_loads_nothing(tmp_path: Path, d: int, k: int) -> None:
    page = page_of(tmp_path, model_of(d, k))
    parsed = Balanced(page)
    assert not parsed.tags & {"script", "link", "img", "iframe", "object", "a"}
    assert not parsed.attributes & {"src", "href", "srcset"}
    assert re.findall(r"https?://[^\"' ]*", page) == ["http://www.w3.org/2000/svg"] * page.count("<svg")
    assert "url(http" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL).lower()
    blocks = -(-d // 40)
    assert page.count("<svg") == 3 + (k > 1) + blocks  # scree, errors, colours; circle; loadings
    assert len(page) < 2_000_000


def test_page_shows_the_numbers(tmp_path: Path) -> None:
    model = model_of(6, 3, ["age", "height", "weight", "pressure", "glucose", "pulse"])
    text = Balanced(page_of(tmp_path, model)).text
    for value in model.explained_variance:
        assert f"{value:.6g}" in text
    assert percent(float(model.explained_variance_ratio.sum())) in text
    for wanted in (
        "1,234",
        "glucose",
        "convergence bit",
        "stop the iteration",
        "121",
        "5 MB",
        "13",
        "verified on shares",
        "a.csv",
    ):
        assert wanted in text, wanted
    assert "9 openings" in text


def test_user_strings_are_escaped(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>\"&$\\frac{1}{$"
    names = [evil, '"><img src=x onerror=alert(1)>', "x\x00y", "ü", "[red]", "column " * 40]
    model = model_of(6, 2, names, audit=[opening(evil, [2], evil, evil)])
    page = page_of(tmp_path, model, title=evil, settings={evil: evil}, owners=[evil, "caf\udce9.csv"])
    parsed = Balanced(page)
    assert not parsed.tags & {"script", "img"}
    assert "onerror" not in parsed.attributes
    assert evil in parsed.text  # shown as it is


def test_failed_verification_and_fall_back_are_said(tmp_path: Path) -> None:
    assert "check on shares failed" in page_of(tmp_path, model_of(3, 2, verified=False))


def test_a_tolerance_that_was_not_reached_is_named(tmp_path: Path) -> None:
    assert "The tolerance was 6e-06" in page_of(tmp_path, model_of(3, 2, tolerance=6.4e-6))
    assert "check on shares failed" not in page_of(tmp_path, model_of(3, 2))
    assert "another computed it again" in page_of(tmp_path, model_of(3, 2, fell_back=True))


def test_components_that_are_not_determined_are_marked(tmp_path: Path) -> None:
    """Of neighbours of equal variance the page says that they span a plane."""
    page = page_of(tmp_path, model_of(5, 4))
    assert page.count('<td class="number">4e-07</td>') == 4  # rounded up
    assert '<td class="number">not determined</td>' not in page
    loose = {"component_error": np.array([3e-8, 0.5, 0.5, 1.57]), "resolution": 0.0}
    page = page_of(tmp_path, model_of(5, 4, spaces=[{"first": 2, "last": 3, "error": 4e-8}], **loose))
    assert page.count('<td class="number">not determined</td>') == 3
    assert "Components 2 and 3 have (nearly) equal variances: only the plane that they span is determined" in page
    assert "Component 4 is not determined" in page


def test_a_noise_variance_below_the_resolution_is_said(tmp_path: Path) -> None:
    assert "noise variance is below the resolution" in page_of(tmp_path, model_of(5, 4, resolution=0.5))
    assert "noise variance" not in page_of(tmp_path, model_of(5, 4))


def test_what_the_result_itself_tells_is_said(tmp_path: Path) -> None:
    assert "determine the joint covariance" in page_of(tmp_path, model_of(3, 3))
    assert "determine the joint covariance" not in page_of(tmp_path, model_of(3, 2))
    assert "With two owners" in page_of(tmp_path, model_of(3, 2), owners=["a", "b"])
    assert "With two owners" not in page_of(tmp_path, model_of(3, 2))


def test_no_variance_at_all(tmp_path: Path) -> None:
    zeros = np.zeros(2)
    Balanced(
        page_of(tmp_path, model_of(4, 2, explained_variance=zeros, explained_variance_ratio=zeros, total_variance=0.0))
    )


def test_equal_openings_are_counted_in_one_line() -> None:
    lines = opening_lines(model_of(5, 2).audit)
    assert [(line.what, line.count, line.to) for line in lines] == [
        ("number of rows", 1, "all servers"),
        ("convergence bit", 7, "all servers"),
        ("components", 1, "receiver"),
    ]
    assert [line.shape_text for line in lines] == ["one number", "one number", "2 × 5"]


def test_a_total_adds_runs_stage_by_stage() -> None:
    first = run_of({"key agreement": counters(1, 64), "covariance": counters(7, 1000)}, [opening("number of rows", [])])
    second = run_of({"key agreement": counters(1, 64), "result": counters(0, 10)}, [opening("components", [2, 5])])
    both = Account.total([first, second])
    assert (both.rounds, both.seconds, both.bytes_sent) == (9, 4.0, [1138] * 4)
    assert [(line.name, line.rounds, line.sent) for line in stage_lines(both)] == [
        ("key agreement", 2, 128),
        ("covariance", 7, 1000),
        ("result", 0, 10),
    ]
    assert [line["number"] for line in both.audit] == [1, 2]
    assert both.stages[3]["total"]["sent_to"] == [0, 1138, 0, 0]


def test_amounts() -> None:
    assert [duration(s) for s in (2e-5, 0.0125, 0.9999, 1.26, 300)] == ["20 µs", "12.5 ms", "1.0 s", "1.3 s", "5.0 min"]
    assert [size(n) for n in (12, 1234, 1.5e6, 2.5e9)] == ["12 B", "1.23 kB", "1.5 MB", "2.5 GB"]
    assert [percent(f) for f in (0, 0.4427, 0.000031)] == ["0 %", "44.27 %", "0.0031 %"]
    assert shortened("a" * 40 + "end", 12) == "aaaaaa…aaend"


def test_variances_below_the_resolution_are_no_digits(tmp_path: Path) -> None:
    limit = float(model_of(6, 3).explained_variance_ratio[1:].mean())
    model = model_of(6, 3, resolution=limit)
    text = Balanced(page_of(tmp_path, model)).text
    assert model.resolved.tolist() == [True, True, False]
    assert f"{model.explained_variance[1]:.6g}" in text
    assert f"{model.explained_variance[2]:.6g}" not in text
    assert f"< {percent(limit)}" in text


def test_the_report_says_that_variances_left_out_were_not_revealed(tmp_path: Path) -> None:
    said = "that the job revealed, not all."
    assert f"the 3 variances {said}" in Balanced(page_of(tmp_path, model_of(6, 3))).text
    assert said not in Balanced(page_of(tmp_path, model_of(3, 3))).text


def test_the_findings_come_first_and_the_costs_last(tmp_path: Path) -> None:
    """Then what to be careful about, pictures, and what was opened: for people first, units folded."""
    audit = [opening("components", [2, 3], "client"), opening("scale of the variance", [], "client")]
    text = Balanced(page_of(tmp_path, model_of(3, 2, rows=5, audit=audit))).text
    order = (
        "This PCA is of 5 rows and 3 columns of 3 owners together",
        "Small groups.",
        "Explained variance",
        "What the components are made of",
        "What was opened",
        "What the receiver got",
        "Units of these numbers",
        "How it was computed",
        "Costs",
        "121 communication rounds",
    )
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert "rounds" not in text[: text.index("How it was computed")]


def test_scores_are_points_in_the_plane(tmp_path: Path) -> None:
    rows, model = rows_and_model(50, 4, 2)
    scores = {"north": model.project(rows)[:20], "<b>": model.project(rows)[20:]}
    page = page_of(tmp_path, model, scores=scores)
    assert page.count('r="2.6"') == 2 * 50, "the scores plot and the biplot"
    biplot = page.partition('aria-label="Biplot')[2].partition("</svg>")[0]
    assert biplot.count('<g class="arrow">') == 4, "one arrow for each column"
    text = Balanced(page).text
    assert "north: 20 rows" in text
    assert "<b>: 30 rows" in text
    many = page_of(tmp_path, model, scores={"north": np.zeros((5000, 2))})
    assert "One of 3 rows is shown." in Balanced(many).text
    assert many.count('r="2.6"') == 2 * 1667
    _, one = rows_and_model(50, 4, 1)
    Balanced(page_of(tmp_path, one, scores={"north": np.ones((3, 1))}))
    assert "Scores" not in Balanced(page_of(tmp_path, model)).text


@needs_browser
def test_the_map_uses_the_width_and_prints_whole(tmp_path: Path) -> None:
    """On paper nothing scrolls in itself, folded parts are there, and colours are those of light paper."""
    page_of(tmp_path, model_of(200, 12))

    async def visit() -> None:
        async with browser() as page:
            for screen in (PHONE, DESK):
                await page.look(width=screen, dark=True)
                await page.go((tmp_path / "report.html").as_uri())
                assert await page.do(
                    "(e => e.getBoundingClientRect().width > 0.9 * e.closest('section').getBoundingClientRect().width)"
                    "(document.querySelector('.maps'))"
                )
                assert await page.do("[...document.querySelectorAll('.cells svg')].every(e => e.clientWidth > 100)")
            await page.say("Emulation.setEmulatedMedia", media="print")
            hidden = "e => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1"
            assert await page.do(f"![...document.querySelectorAll('.maps, .scroll, .cells')].some({hidden})")
            assert await page.do("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
            assert page.problems == []

    asyncio.run(visit())


def test_words_of_owners_of_columns(tmp_path: Path) -> None:
    """Their numbers of rows are seen by servers, their means are in the result, and nothing is 'the rows of n owners'."""
    text = Balanced(page_of(tmp_path, model_of(3, 2), by_columns=True, owners=["a", "b"])).text
    assert "3 columns of 2 owners, joined row by row" in text
    assert "the servers saw how many rows every owner uploaded" in text
    for untrue in (
        "2 owners together",
        "no single owner's number of rows",
        "With two owners",
        "rows, all owners together",
    ):
        assert untrue not in text, untrue
    rows = Balanced(page_of(tmp_path, model_of(3, 2))).text
    assert "3 columns of 3 owners together" in rows
    assert "no single owner's number of rows" in rows


def test_what_is_cut_is_said(tmp_path: Path) -> None:
    text = Balanced(page_of(tmp_path, model_of(40, 20))).text
    assert "the first 12 of 20 components" in text
    assert "Listed: the first 6 of 20 components and the 6 strongest of 40 columns; components.csv has all." in text
    assert "Listed:" not in Balanced(page_of(tmp_path, model_of(3, 2))).text


def test_names_can_be_told_apart() -> None:
    long = [f"a very long series of measurements, number {i}, in the morning, in mg per litre" for i in range(3)]
    assert len(set(labels(long))) == 3
    assert labels(["a", "b"]) == ["a", "b"]
    assert labels(long)[1].endswith(" (2)")
    wide = shortened("患者の年齢と身長と体重の合計の値と平均値その一")
    assert wide.endswith("その一")
    assert len(wide) <= 16  # wide letters count twice


def test_small_and_dark_screens(tmp_path: Path) -> None:
    page = page_of(tmp_path, model_of(200, 5))
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "prefers-color-scheme: dark" in style[1]
    assert not re.findall(r"minmax\(\d{3}", style[1])  # no grid is wider than a phone
    assert page.count("<table") == len(re.findall(r'<div class="scroll"><table', page))
    for component in range(1, 6):  # the numbers of components come again in every block of a long map
        assert page.count(f'%" y="13">{component}</text>') == 5


LONG = [
    "average_consumption_of_reactive_power_in_the_north_wing",
    "average_consumption_of_reactive_power_in_the_south_wing",
]


@needs_browser
def test_no_screen_scrolls_sideways(tmp_path: Path) -> None:
    """In a real browser: wide tables scroll in themselves, names of one word break, and names of any script are there."""
    names = [
        *LONG,
        "身長（センチメートル）測定値平均",
        "среднее артериальное давление пациента",
        "العمر بالسنوات",
        "W" * 60,
    ]

    async def visit() -> None:
        async with browser() as page:
            for model in (model_of(6, 6, names), model_of(200, 30), model_of(1, 1)):
                rows = {"病院": np.ones((5, len(model.components)))}
                page_of(tmp_path, model, title="W" * 80, owners=["w" * 80, "病院"], scores=rows)
                for width in (PHONE, DESK):
                    for dark in (False, True):
                        await page.look(width=width, dark=dark)
                        await page.go((tmp_path / "report.html").as_uri())
                        assert await page.width() <= width
                        assert await page.barriers() == []
                        ink = await page.do("getComputedStyle(document.body).color")
                        paper = await page.do("getComputedStyle(document.body).backgroundColor")
                        assert (brightness(ink) > brightness(paper)) is dark
            assert not page.problems
            assert all(request.startswith("file:") for request in page.requests)

    asyncio.run(visit())


def brightness(colour: str) -> int:
    """Of a colour as a browser says it: rgb(1, 2, 3)."""
    return sum(map(int, re.findall(r"\d+", colour)[:3]))
