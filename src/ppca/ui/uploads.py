"""The form of a contribution: the path of a table on this machine, or the table itself, which lies in a folder of its own until
it is shared."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from aiohttp import BodyPartReader, web

PREFIX = "upload-"
CHUNK = 1 << 20
MOST_TEXT = 4096
ENDING = re.compile(r"(\.[A-Za-z0-9]{1,8}){0,2}$")


@dataclass
class Form:
    path: str = ""
    id: str = ""
    decimal: str = "."
    encoding: str = "utf-8"
    upload: Path | None = None

    def table(self, *, needed: bool) -> Path:
        """The table to read. One that is shared and sealed already is not needed again."""
        if self.upload is not None:
            return self.upload
        if not self.path and needed:
            raise ValueError("choose a file, or type the path of one on this machine.")
        return Path(self.path).expanduser()

    def clear(self) -> None:
        """Deletes what was uploaded."""
        if self.upload is not None:
            shutil.rmtree(self.upload.parent, ignore_errors=True)


class Uploads:
    """Tables on their way from the browser into shares, in the member's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for left in folder.glob(f"{PREFIX}*"):
            if not _is_alive(int(left.name.split("-")[1])):  # its process was killed
                shutil.rmtree(left, ignore_errors=True)

    def clear(self) -> None:
        """Deletes what this process has not yet shared."""
        for left in self.folder.glob(f"{PREFIX}{os.getpid()}-*"):
            shutil.rmtree(left, ignore_errors=True)

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
                elif part.name in ("path", "id", "decimal", "encoding"):
                    setattr(form, part.name, await _text(part))
        except BaseException:
            form.clear()
            raise
        form.encoding = form.encoding or "utf-8"
        return form

    async def _take(self, part: BodyPartReader, form: Form) -> None:
        if not part.filename or form.upload is not None:
            return
        ending = ENDING.search(part.filename)
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=self.folder))  # for this user only
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


async def _text(part: BodyPartReader) -> str:
    found = b""
    while chunk := await part.read_chunk(MOST_TEXT):
        found += chunk
        if len(found) > MOST_TEXT:
            raise web.HTTPRequestEntityTooLarge(max_size=MOST_TEXT, actual_size=len(found))
    return found.decode("utf-8", "replace").strip()
