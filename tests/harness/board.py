"""A federation without servers: members with real keys, and one list of objects that is all four seats at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ppca.federation.drafting import draft_fit
from ppca.federation.errors import NotReached
from ppca.federation.identity import Identity, key_text
from ppca.federation.job import JobDescription
from ppca.federation.objects import Header, Object
from ppca.federation.roster import SEATS, Roster, RosterFile, render, statement
from ppca.federation.sealing import SealingKey
from ppca.member import Member

OPERATORS = ("alpha", "beta", "gamma", "delta")
OWNERS = ("north", "harbour", "hill")
RECEIVER = "analyst"
COLUMNS = ["age", "cholesterol", "oldpeak", "thalach"]


class Board:
    """What everybody has said. `reached` False: no seat answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        names = (*OPERATORS, *OWNERS, RECEIVER)
        self.identities = {name: Identity.create(name, folder / name / "identity.key") for name in names}
        self.roster = self._roster()
        self.objects: dict[str, Object] = {}
        self.progress: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.reached = True

    def _roster(self) -> Roster:
        keys = {name: key_text(identity.public) for name, identity in self.identities.items()}
        seats = [
            {
                "number": seat,
                "member": name,
                "key": keys[name],
                "api": f"127.0.0.1:{1000 + seat}",
                "mesh": "127.0.0.1:1",
            }
            for seat, name in enumerate(OPERATORS)
        ]
        roles = {key: ["owner"] for key in OWNERS} | {RECEIVER: ["receiver"]}
        members = [{"name": name, "key": keys[name], "roles": each} for name, each in roles.items()]
        content = {"name": "heart-study", "revision": 1, "seat": seats, "member": members}
        data = render(RosterFile.model_validate(content))
        signed = {name: self.identities[name].sign(statement(data)) for name in OPERATORS}
        return Roster(data, signed)

    def member(self, name: str) -> Member:
        member = Member(self.roster, self.identities[name], self.folder / name / "state")
        member.seats = BoardSeats(self)  # type: ignore[assignment]
        return member

    def job(self, name: str = "first job", owners: tuple[str, ...] = OWNERS, **more: Any) -> JobDescription:
        """A job that the receiver has submitted, and for which all seats offer keys."""
        columns = more.pop("columns", COLUMNS)
        job = draft_fit(self.roster, name, owners, columns, {RECEIVER: ["model"]}, fit={"components": 2}, **more)
        self.say(RECEIVER, "job", job, job.data)
        for seat, operator in enumerate(OPERATORS):
            self.say(operator, "offer", job, SealingKey().public, seat=seat)
        return job

    def say(self, who: str, kind: str, job: JobDescription, payload: bytes = b"", **about: Any) -> None:
        self.put(Object.make(self.identities[who], kind, job.id, payload, **about))

    def receive(self, job: JobDescription) -> None:
        """All seats have all shares."""
        for operator in OPERATORS:
            for owner in job.file.owners:
                self.say(operator, "receipt", job, owner=owner)

    def end(self, job: JobDescription, attempt: int = 1) -> None:
        """All seats have finished, and say what they opened."""
        for seat, operator in enumerate(OPERATORS):
            counts = {"rounds": 7, "sent": [0, 0, 0, 0], "received": [0, 0, 0, 0], "audit": "same"}
            about = {"attempt": attempt, "outcome": "finished", "final": False, "why": "", "seat": seat}
            self.say(operator, "ended", job, **about, **counts)
            line = {"what": "components", "shape": [2, 4], "to": RECEIVER, "why": "the result"}
            bit = {"what": "verification bit", "shape": [], "to": "servers", "why": "is it accurate"}
            text = json.dumps({"audit": [bit, line], "seat": seat}).encode()
            self.say(operator, "audit", job, text, attempt=attempt, seat=seat)

    def put(self, item: Object) -> None:
        with self.news:
            self.objects.setdefault(item.digest, item)
            self.news.notify_all()

    def show(self, job: JobDescription, text: str, fraction: float | None) -> None:
        with self.news:
            self.progress.append({"job": job.id, "text": text, "fraction": fraction, "rounds": 1234})
            self.news.notify_all()

    def lose(self) -> None:
        with self.news:
            self.reached = False
            self.news.notify_all()

    def find(self) -> None:
        with self.news:
            self.reached = True

    def check(self) -> None:
        if not self.reached:
            raise NotReached("no seat is reached: seat 0 (alpha, 127.0.0.1:1000): Connection refused.")


class BoardSeats:
    """Stands for `member.seats.Seats`."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.clients = {seat: BoardClient(board) for seat in SEATS}

    def put(self, item: Object, to: int | None = None) -> None:
        self.board.check()
        self.board.put(item)

    def get(self, digest: str) -> Object:
        self.board.check()
        item = self.board.objects[digest]
        item.check_author(self.board.roster.signers)
        return item

    def headers(self, job: str) -> list[Header]:
        self.board.check()
        return [item.header for item in list(self.board.objects.values()) if item.header.job == job]

    def close(self) -> None:
        pass


class BoardClient:
    def __init__(self, board: Board) -> None:
        self.board = board

    def events(self, after: int = 0) -> Iterator[tuple[str, Any]]:
        board, place, told = self.board, 0, 0
        board.check()
        yield "place", 0
        while True:
            with board.news:
                items, progress = list(board.objects.values())[place:], board.progress[told:]
                if not items and not progress:
                    board.news.wait(0.2)
                    items, progress = list(board.objects.values())[place:], board.progress[told:]
            board.check()
            place, told = place + len(items), told + len(progress)
            for seq, item in enumerate(items):
                yield "object", {"seq": seq, **item.header.as_dict()}
            for each in progress:
                yield "progress", each
            if not items and not progress:
                yield "silence", None
