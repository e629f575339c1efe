"""All four servers as one list of objects, for tests of what members see: nothing runs, and operators say what a test
says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import federation
from harness.federation import IDENTITIES, MEMBERSHIP, OPERATORS, OWNERS, RECEIVER
from ppca.federation.errors import NotReached
from ppca.federation.membership import SERVERS
from ppca.federation.objects import Header, Object
from ppca.federation.proposal import ProposedJob
from ppca.member import MemberClient


class Board:
    """What everyone has said. `reached` False: no server answers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, Object] = {}
        self.progress: list[dict[str, Any]] = []
        self.news = threading.Condition()
        self.reached = True

    def member(self, name: str) -> MemberClient:
        member = MemberClient(MEMBERSHIP, IDENTITIES[name], self.folder / name / "state")
        member.servers = BoardServers(self)  # type: ignore[assignment]
        return member

    def job(self, name: str = "first job", owners: tuple[str, ...] = OWNERS, **more: Any) -> ProposedJob:
        """A job that the receiver has submitted, and for which all servers offer keys."""
        job = federation.job(name=name, owners=owners, **more)
        self.say(RECEIVER, "job", job, job.data)
        for item in federation.offers(job):
            if item.header.author in OPERATORS:
                self.put(item)
        return job

    def say(self, who: str, kind: str, job: ProposedJob, payload: bytes = b"", **about: Any) -> None:
        self.put(federation.make(who, kind, job, payload, **about))

    def finished(self, name: str = "first job") -> ProposedJob:
        """A job that went well; its result waits for the receiver."""
        job = self.job(name)
        for owner in OWNERS:
            self.say(owner, "approval", job)
            self.say(owner, "contribution", job, b"{}")
        self.member(RECEIVER).approve(job)
        self.run(job)
        self.end(job)
        return job

    def run(self, job: ProposedJob) -> None:
        """All servers have all shares, and begin."""
        sent = {
            each.header.author: each.digest
            for each in list(self.objects.values())
            if each.header.job == job.id and each.header.kind == "contribution"
        }
        for operator in OPERATORS:
            for owner, digest in sent.items():
                self.say(operator, "receipt", job, owner=owner, contribution=digest)
        self.say("alpha", "start", job, attempt=1)
        for operator in OPERATORS:
            self.say(operator, "ready", job, attempt=1)

    def end(self, job: ProposedJob) -> None:
        """All servers have finished, and say what they opened."""
        for server, operator in enumerate(OPERATORS):
            self.put(federation.ended(job, operator))
            bit = {"what": "verification bit", "shape": [], "to": "servers", "why": "is it accurate"}
            line = {"what": "components", "shape": [2, 3], "to": RECEIVER, "why": "agreed result"}
            audit = json.dumps({"audit": [bit, line], "server": server}).encode()
            self.say(operator, "audit", job, audit, attempt=1, server=server)

    def put(self, item: Object) -> None:
        with self.news:
            self.objects.setdefault(item.digest, item)
            self.news.notify_all()

    def show(self, job: ProposedJob, text: str, fraction: float | None) -> None:
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
            raise NotReached("could not reach any server: server 0 (alpha, 127.0.0.1:1000): Connection refused.")


class BoardServers:
    """Stands for `member.servers.Servers`."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.clients = {server: BoardClient(board) for server in SERVERS}

    def put(self, item: Object, to: int | None = None) -> None:
        self.board.check()
        self.board.put(item)

    put_everywhere = put

    def get(self, header: Header) -> Object:
        self.board.check()
        item = self.board.objects[header.digest]
        item.check_author(MEMBERSHIP.signers)
        return item

    def headers(self, job: str) -> list[Header]:
        self.board.check()
        return [item.header for item in list(self.board.objects.values()) if item.header.job == job]

    def jobs(self) -> list[dict[str, Any]]:
        self.board.check()
        found = [item for item in list(self.board.objects.values()) if item.header.kind == "job"]
        return [{"id": item.header.job, "name": "", "place": None, "progress": None} for item in found]

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
            yield "place", place
