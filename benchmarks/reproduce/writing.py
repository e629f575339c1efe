"""A result in three forms: tables in the terminal, a section of Markdown, and JSON with all digits; figures as PNG."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from docs.generate import markdown
from ppca.html.formats import counted

from .parts import NOT_TIMED, WITHOUT_DATA
from .result import Options, Result, was_busy
from .style import save


def content(name: str, result: Result, options: Options, machine: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return what the JSON of a part holds: enough to write its section of the page."""
    return {
        "part": name,
        "title": result.title,
        "scale": options.scale,
        "command": command(name, options),
        "seconds": round(seconds, 1),
        "machine": machine,
        "conditions": result.conditions,
        "tables": [vars(table) for table in result.tables],
        "plots": [{"file": f"{name}-{plot.name}.png", "caption": plot.caption} for plot in result.plots],
    }


def command(name: str, options: Options) -> str:
    """Return how to run the part again; folders are the reader's own."""
    words = ["ppca bench reproduce", name]
    words += ["--data DATA"] if options.data is not None and name not in WITHOUT_DATA else []
    words += [f"--{options.scale}"] if options.scale != "full" else []
    words += ["--spu VENV"] if options.spu is not None and name in ("peers", "wan") else []
    words += ["--mp-spdz TREE"] if options.mp_spdz is not None and name in ("peers", "wan") else []
    words += ["--mp-spdz-plain TREE"] if options.mp_spdz_plain is not None and name == "peers" else []
    words += [f"--solver {options.solver}"] if options.solver != Options.solver and name == "wan" else []
    return " ".join(words)


def section(data: dict[str, Any], figures: str) -> str:
    """A section of Markdown from the JSON of a part; `figures`: where the pictures are, as seen from the page."""
    machine = data["machine"]
    lines = [f"## {data['title']}", "", f"    {data['command']}", ""]
    lines += [f"- {sentence}" for sentence in data["conditions"]]
    lines += [
        f"- {counted(machine['cores'], 'core')} of {machine['processor']}, load {machine['load']} before the run; "
        f"the run took {data['seconds']:.0f} s"
        + (f", of commit {machine['commit']}." if machine.get("commit") else ".")
    ]
    if was_busy(machine) and data["part"] not in NOT_TIMED:
        lines += [
            "- The machine was busy with other things: times are larger than on a quiet one, most with many rounds."
        ]
    if data["scale"] != "full":
        lines += [f"- A {data['scale']} run: sizes are smaller than those of a full one."]
    for table in data["tables"]:
        right = {
            i for i in range(1, len(table["columns"])) if any(row[i][:1].isdigit() for row in table["rows"] if row[i])
        }
        lines += ["", f"**{table['title']}**", "", markdown(table["columns"], table["rows"], right)]
        lines += ["", table["note"]] if table["note"] else []
    for plot in data["plots"]:
        lines += ["", f"![{plot['caption']}]({figures}{plot['file']})", "", f"*{plot['caption']}*"]
    return "\n".join(lines)


def show(data: dict[str, Any], console: Console) -> None:
    """The same in the terminal."""
    console.rule(escape(data["title"]), align="left")
    for sentence in data["conditions"]:
        console.print(f"- {sentence}", highlight=False, markup=False)
    for table in data["tables"]:
        shown = RichTable(title=escape(table["title"]), title_justify="left")
        for i, heading in enumerate(table["columns"]):
            numbers = i > 0 and any(row[i][:1].isdigit() for row in table["rows"] if row[i])
            shown.add_column(escape(heading), justify="right" if numbers else "left")
        for row in table["rows"]:
            shown.add_row(*map(escape, row))
        console.print(shown)
        if table["note"]:
            console.print(table["note"], highlight=False, markup=False)


def write(data: dict[str, Any], result: Result, folder: Path) -> list[Path]:
    """JSON, Markdown and figures of a part; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for plot, entry in zip(result.plots, data["plots"], strict=True):
        files.append(folder / entry["file"])
        save(plot.figure, files[-1])
    for suffix, text in (("md", section(data, "")), ("json", json.dumps(data, indent=1, ensure_ascii=False))):
        files.append(folder / f"{data['part']}.{suffix}")
        files[-1].write_text(text + "\n")
    return files
