"""The form of a contribution: the path of a table on this machine, or the table itself, which lies in a folder of its
own until it is shared."""

from __future__ import annotations

import csv
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, web

from ...owner.tables.options import ReadOptions, settable
from .preview import Preview

READING = settable(without=["missing"])
"""The options for reading that the form offers. What becomes of missing values is part of the job."""

PREFIX = "upload-"
CHUNK = 1 << 20
MAX_TEXT, MAX_NAME = 4096, 120
ENDING = re.compile(r"(\.[A-Za-z0-9]{1,8}){0,2}$")


@dataclass
class Form:
    path: str = ""
    name: str = ""
    id: str = ""
    upload: Path | None = None
    reading: dict[str, str] = field(default_factory=dict)

    def table(self, *, needed: bool) -> Path:
        """The table to read. One that is shared and sealed already is not needed again."""
        if self.upload is not None:
            return self.upload
        if not self.path and needed:
            raise ValueError("choose a file, or type the path of one on this machine.")
        return Path(self.path).expanduser()

    @property
    def label(self) -> str:
        """Name of the table for a person."""
        return self.name or Path(self.path).name

    def options(self) -> ReadOptions:
        """Return how the table is read. Empty fields keep their defaults. The job says how missing values count."""
        given: dict[str, Any] = {name: text for name, text in self.reading.items() if text}
        if "na_values" in given:
            given["na_values"] = tuple(next(csv.reader([given["na_values"]], skipinitialspace=True)))
        return ReadOptions(**given)

    def clear(self) -> None:
        """Delete what was uploaded."""
        if self.upload is not None:
            shutil.rmtree(self.upload.parent, ignore_errors=True)


class Uploads:
    """Tables on their way from the browser into shares, in the member's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.previews: dict[str, Preview] = {}
        self._forms: dict[str, Form] = {}
        for left in folder.glob(f"{PREFIX}*"):
            if not _is_alive(int(left.name.split("-")[1])):  # its process was killed
                shutil.rmtree(left, ignore_errors=True)

    def clear(self) -> None:
        """Delete what this process has not yet shared."""
        for left in self.folder.glob(f"{PREFIX}{os.getpid()}-*"):
            shutil.rmtree(left, ignore_errors=True)

    def hold(self, job: str, form: Form, found: Preview) -> None:
        """Keep a table that was checked, until it is sent or put away."""
        self.discard(job)
        self._forms[job], self.previews[job] = form, found

    def checked(self, job: str) -> Form:
        """The table that was checked for a job; an empty form if there is none. One with problems is refused."""
        if job in self.previews and self.previews[job].problems:
            raise ValueError(f"{self.previews[job].verdict} Choose another one, or change how it is read.")
        return self._forms.get(job, Form())

    def discard(self, job: str) -> None:
        """Delete what was uploaded for a job and not sent."""
        self.previews.pop(job, None)
        if form := self._forms.pop(job, None):
            form.clear()

    async def read(self, request: web.Request) -> Form:
        if not request.content_type.startswith("multipart/"):
            raise web.HTTPUnsupportedMediaType(text="This is not what the form of the page sends.\n")
        form = Form()
        try:
            async for part in await request.multipart():
                if not isinstance(part, BodyPartReader):
                    continue
                if part.name == "file":
                    await self._take(part, form)
                elif part.name in ("path", "id"):
                    setattr(form, part.name, await _text(part))
                elif part.name is not None and part.name in READING:
                    form.reading[part.name] = await _text(part, strip=False)
        except BaseException:
            form.clear()
            raise
        return form

    async def _take(self, part: BodyPartReader, form: Form) -> None:
        if not part.filename or form.upload is not None:
            return
        ending = ENDING.search(part.filename)
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=self.folder))  # for this user only
        form.name = part.filename[:MAX_NAME]
        form.upload = folder / f"table{ending[0] if ending else ''}"
        with form.upload.open("wb") as file:
            while chunk := await part.read_chunk(CHUNK):
                file.write(chunk)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


async def _text(part: BodyPartReader, *, strip: bool = True) -> str:
    found = b""
    while chunk := await part.read_chunk(MAX_TEXT):
        found += chunk
        if len(found) > MAX_TEXT:
            raise web.HTTPRequestEntityTooLarge(max_size=MAX_TEXT, actual_size=len(found))
    text = found.decode("utf-8", "replace")
    return text.strip() if strip else text
