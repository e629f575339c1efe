"""Contributions on this server: sealed chunks on its disk, opened when needed and compared with what the owner signed.

Chunks that the disk has lost are restored from this server's mates, which hold the same summands.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..federation.envelopes import messages, opened
from ..federation.errors import FederationError, ObjectRefused
from ..federation.expected import checked
from ..federation.objects import CHUNK_BYTES, Object
from ..federation.proposal import ProposedJob
from ..federation.sealing import SealingKey, seal
from ..federation.state import times_before
from ..federation.text import plain
from ..runtime.control import Message
from .checking import Checker, CheckFailed, counted
from .keys import JOB
from .mailbox import write_file
from .mates import HalfLost, Mates, halves
from .object_rules import chunks_of, summands_of
from .server_state import ServerState

log = logging.getLogger("ppca.shares")
MAX_RETRY_DELAY = 600.0
"""Seconds between two checks of a contribution that this server could not check."""

MAX_CHUNKS = 1 << 16
MENDING = 15.0
"""Seconds to wait for shares that an owner has sent before this server asks its mates for them."""


class Contributions:
    """Every owner's shares of every job, as far as they are here."""

    def __init__(self, server_state: ServerState) -> None:
        self.server_state = server_state
        self.mates = Mates(server_state)
        self._mending: dict[tuple[str, str], float] = {}
        self._again: dict[tuple[str, str], tuple[float, float]] = {}
        self._replacing = threading.Lock()
        self._checker = Checker(server_state.settings.file.policy.input_bytes)

    def messages_of(self, known: ProposedJob, owner: str) -> Iterator[Message]:
        """Yield an owner's messages to this server; raise ObjectRefused at the first that does not fit the job."""
        key = self.server_state.keys.of(JOB, known.id)
        if key is None:
            raise FederationError(f"the key of job {known.id[:12]} is not here any more")
        restored = self._is_restored(known, owner)
        chunks = (
            self._restored(known, owner, key)
            if restored
            else opened(self._envelopes(known, owner), key, self.server_state.server)
        )
        found = messages(chunks, self.server_state.settings.file.policy.input_bytes)
        return checked(known.spec.data, owner, self.server_state.server, found)

    def _restored(self, known: ProposedJob, owner: str, key: SealingKey) -> Iterator[bytes]:
        for number, path in enumerate(self._restored_files(known, owner)):
            yield key.open(path.read_bytes(), what="restored", job=known.id, owner=owner, chunk=number)

    def _restored_files(self, known: ProposedJob, owner: str) -> list[Path]:
        place = self._place(known.id, owner)
        text = (place / "chunks").read_text()
        if not (text.isascii() and text.isdigit()) or int(text) > MAX_CHUNKS:
            shutil.rmtree(place, ignore_errors=True)
            raise FederationError(f"what came back of the shares of {owner} is damaged; it is asked for again")
        return [place / str(number) for number in range(int(text))]

    def _place(self, job: str, owner: str) -> Path:
        """Return the folder of an owner's shares that were restored from this server's mates."""
        return self.server_state.settings.store / "restored" / job / owner

    def _is_restored(self, known: ProposedJob, owner: str) -> bool:
        return (self._place(known.id, owner) / "chunks").exists()

    def _envelopes(self, known: ProposedJob, owner: str) -> Iterator[Object]:
        contribution = self.server_state.mailbox.objects(known.id).by("contribution", owner)
        item = None if contribution is None else self.server_state.mailbox.get(contribution.digest)
        if item is None:
            raise FederationError(f"the contribution of {owner} is not here")
        for digest in chunks_of(item)[self.server_state.server]:
            envelope = self.server_state.mailbox.get(digest)
            if envelope is None:
                raise FederationError(f"an envelope of {owner} is not here yet, or no longer readable")
            if (envelope.header.author, envelope.header.job) != (owner, known.id):
                raise ObjectRefused(f"the contribution of {owner} lists an envelope that is not its own")
            yield envelope

    def _intact(self, known: ProposedJob) -> bool | None:
        """Return whether the key of a job is the one that this server has offered; None if it has offered none, or the
        job is erased.

        OSError if the key cannot be read now.
        """
        server_state = self.server_state
        former = server_state.mailbox.objects(known.id).offer(server_state.identity.name, of_server=True)
        offered = None if former is None else server_state.mailbox.get(former.digest)
        if offered is None or server_state.mailbox.note(f"erased {known.id}") is not None:
            return None
        try:
            key = server_state.keys.of(JOB, known.id)
        except ObjectRefused:
            return False
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOENT):  # such as too many open files: the key may be good
                raise
            return False
        return key is not None and key.public == offered.payload

    def ensure_key(self, known: ProposedJob) -> None:
        """Compare the key of a job with the public half that this server has offered.

        If the disk has lost or damaged it, this server offers a new one; what owners sealed to the old one comes back
        from the mates.
        """
        server_state = self.server_state
        with self._replacing:  # a check and an attempt may both notice it
            objects = server_state.mailbox.objects(known.id)
            former = objects.offer(server_state.identity.name, of_server=True)
            if former is None or self._intact(known) is not False:
                return
            log.error("key damaged", extra={"job": known.id})
            server_state.keys.destroy(JOB, known.id)
            key = server_state.keys.make(JOB, known.id)
            server_state.publish(
                "offer", known.id, key.public, server=server_state.server, again=times_before(former) + 1
            )
        for owner in known.proposal.owners:
            if objects.by("contribution", owner) is not None:
                self.bring_back(known, owner)

    def check(self, known: ProposedJob, owner: str, contribution: str) -> None:
        """Open all envelopes of an owner and compare them with what it signed; write the receipt, or refuse by its
        name."""
        place = known.id, owner
        if not self.is_due(known.id, owner):
            return
        try:
            with self._giving_up(known):
                self.ensure_key(known)
                decided = self._check(known, owner, contribution)
        except (FederationError, OSError):  # not the owner's fault: it is tried again, less and less often
            self._pause(place, MAX_RETRY_DELAY)
            raise
        if decided:
            self._again.pop(place, None)
        else:
            self._pause(place, MENDING)

    def is_due(self, job: str, owner: str) -> bool:
        """Return whether a contribution is to be checked now: after a check that decided nothing, the next one comes
        later."""
        return time.monotonic() >= self._again.get((job, owner), (0.0, 0.0))[0]

    def _pause(self, place: tuple[str, str], longest: float) -> None:
        """Double the time until the next check of a contribution."""
        pause = min(longest, 2 * self._again.get(place, (0.0, 0.0))[1] or 1.0)
        self._again[place] = time.monotonic() + pause, pause

    def _check(self, known: ProposedJob, owner: str, contribution: str) -> bool:
        """Publish a receipt or a refusal. False if the contribution is not complete here yet."""
        item = self.server_state.mailbox.get(contribution)
        if item is None or not (self._has_all(known, owner, item) or self._mended(known, owner)):
            return False
        try:
            with counted(self.server_state.mailbox, f"checks {known.id} {owner}"):
                taken = self._compare(known, owner, item)
        except ObjectRefused as error:
            if self._was_replaced(known) and not self._is_restored(known, owner):
                self._mended(known, owner)  # it was sealed to a key that this server had before
                return False
            self.server_state.publish(
                "refusal", known.id, why=plain(f"the shares of {owner} cannot be used: {error}")[:1000]
            )
            return True
        too_much = self._excess(known, owner, taken)
        if too_much:
            self.server_state.publish("refusal", known.id, why=too_much)
        else:
            self.server_state.publish("receipt", known.id, owner=owner, contribution=contribution)
        return True

    def _was_replaced(self, known: ProposedJob) -> bool:
        """Return whether this server has offered more than one key for a job."""
        offer = self.server_state.mailbox.objects(known.id).offer(self.server_state.identity.name, of_server=True)
        return offer is not None and times_before(offer) > 0

    def _excess(self, known: ProposedJob, owner: str, taken: int) -> str:
        """Return why the shares of all owners are too large together, naming the owner of the largest; empty if they
        fit."""
        box, most = self.server_state.mailbox, self.server_state.settings.file.policy.input_bytes
        name = f"inputs {known.id} "
        box.note(name + owner, str(taken))
        sizes = {who: int(size) for who, size in box.noted(name).items()}
        total, largest = sum(sizes.values()), max(sizes, key=lambda who: (sizes[who], who))
        if total <= most:
            return ""
        return (
            f"the shares of all owners so far take {total:,} bytes, those of {largest} {sizes[largest]:,} of them; "
            f"this server takes {most:,} for a job ([policy] memory)"
        )

    def _compare(self, known: ProposedJob, owner: str, contribution: Object) -> int:
        """Open the shares of an owner in a separate process. Return the bytes that they take in memory.

        ObjectRefused if they are not what the job asks for and the owner has signed; CheckFailed if a file is damaged.
        """
        server_state, key = self.server_state, self.server_state.keys.of(JOB, known.id)
        if key is None:
            raise FederationError(f"the key of job {known.id[:12]} is not here any more")
        restored = self._is_restored(known, owner)
        if restored:
            files = self._restored_files(known, owner)
        else:
            files = [server_state.mailbox.path(digest) for digest in chunks_of(contribution)[server_state.server]]
        try:
            return self._checker.check(
                server=server_state.server,
                job=known.data.decode(),
                owner=owner,
                key=key.to_bytes().hex(),
                files=[str(path) for path in files],
                restored=restored,
                signed=summands_of(contribution),
            )
        except CheckFailed:
            if restored:
                shutil.rmtree(self._place(known.id, owner), ignore_errors=True)
            else:
                for path in files:
                    server_state.mailbox.get(path.name)  # notes what is lost
            raise

    def _has_all(self, known: ProposedJob, owner: str, contribution: Object) -> bool:
        mine = chunks_of(contribution)[self.server_state.server]
        return self._is_restored(known, owner) or all(map(self.server_state.mailbox.has, mine))

    def _mended(self, known: ProposedJob, owner: str) -> bool:
        """Request contributions that are missing or lost from this server's mates, which hold the same summands."""
        now = time.monotonic()
        due = self._mending.setdefault((known.id, owner), now + MENDING)
        if now < due:
            return False
        self._mending[known.id, owner] = now + MENDING
        try:
            self.bring_back(known, owner)
        except HalfLost:
            raise
        except FederationError as error:
            log.warning("shares not mended", extra={"job": known.id, "member": owner, "reason": str(error)})
            return False
        log.warning("shares mended by the mates of this server", extra={"job": known.id, "member": owner})
        return True

    def mend(self, known: ProposedJob) -> None:
        """Before an attempt: what the disk has lost since the receipt comes back from the mates."""
        with self._giving_up(known):
            self.ensure_key(known)
            objects = self.server_state.mailbox.objects(known.id)
            for owner in known.proposal.owners:
                header = objects.by("contribution", owner)
                item = None if header is None else self.server_state.mailbox.get(header.digest)
                if item is not None and not self._whole(known, owner, item):
                    self.bring_back(known, owner)

    def repair_key(self, known: ProposedJob) -> None:
        """After a start: repair a damaged key at once, before a mate loses its key, too."""
        if self._intact(known) is False or self._was_replaced(known):
            self.mend(known)

    @contextmanager
    def _giving_up(self, known: ProposedJob) -> Iterator[None]:
        """Refuse the job if one half of an owner's shares is lost for good, so that it ends everywhere and says why.

        Two servers hold each half, sealed to a key of each. If both have lost their key, it cannot be opened.
        """
        try:
            yield
        except HalfLost as lost:
            if self._was_replaced(known):  # else this server has lost files, which may come back
                why = (
                    f"one half of the shares is lost: the servers of {self.server_state.identity.name} and {lost} "
                    "held it, and both have lost their key of this job. Propose the job again."
                )
                with suppress(ObjectRefused):  # the job is over
                    self.server_state.publish("refusal", known.id, why=why)
            raise FederationError(f"{lost} has lost its key of this job, too") from None

    def give_back(self, known: ProposedJob, owner: str, split: str) -> Iterator[bytes]:
        """For a mate: one half of what an owner sent. HalfLost if this server can never open it again."""
        if self._intact(known) is False or self._sealed_to_lost_key(known, owner):
            raise HalfLost("this server has lost its key of the job, too")
        return halves(self.messages_of(known, owner), split)

    def _sealed_to_lost_key(self, known: ProposedJob, owner: str) -> bool:
        """Return whether what an owner sent was sealed to a key that this server had before, and did not come back, or
        was damaged."""
        if not self._was_replaced(known):
            return False
        if self._is_restored(known, owner):
            try:
                deque(self.messages_of(known, owner), maxlen=0)
                return False
            except (FederationError, FileNotFoundError):
                shutil.rmtree(self._place(known.id, owner), ignore_errors=True)
        try:
            next(self.messages_of(known, owner), None)
        except ObjectRefused:
            return True
        return False

    def _whole(self, known: ProposedJob, owner: str, contribution: Object) -> bool:
        """Return whether all shares of an owner can be read: damage shows when they are.

        What was sealed to a key that this server had before does not open, and must have come back from the mates.
        """
        if self._is_restored(known, owner) or self._was_replaced(known):
            try:
                self._compare(known, owner, contribution)
                return True
            except (FederationError, OSError):
                return False
        return all(
            self.server_state.mailbox.get(digest) is not None
            for digest in chunks_of(contribution)[self.server_state.server]
        )

    def drop_forwarded(self, known: ProposedJob) -> None:
        """Envelopes for other servers that have reached them are not needed here."""
        receipts = self.server_state.mailbox.objects(known.id).receipts()
        everybody = {
            (name, owner) for name in self.server_state.membership.operators.values() for owner in known.proposal.owners
        }
        if everybody <= receipts:
            self.server_state.mailbox.drop(known.id, ["envelope"], to_others_than=self.server_state.server)

    def bring_back(self, known: ProposedJob, owner: str) -> None:
        """The shares of one owner from the mates of this server, checked against what the owner signed."""
        server_state = self.server_state
        key = server_state.keys.of(JOB, known.id)
        header = server_state.mailbox.objects(known.id).by("contribution", owner)
        item = None if header is None else server_state.mailbox.get(header.digest)
        if key is None or item is None:
            raise FederationError(f"the key of the job, or the contribution of {owner}, is not here")
        self._store(known, owner, key, self.mates.joined(known.id, owner))
        try:
            self._compare(known, owner, item)
        except ObjectRefused as error:
            shutil.rmtree(self._place(known.id, owner), ignore_errors=True)
            raise ObjectRefused(f"the shares of {owner} for {known.name!r} came back wrong: {error}") from None

    def _store(self, known: ProposedJob, owner: str, key: SealingKey, stream: Iterator[bytes]) -> None:
        """The stream in sealed pieces, as envelopes are."""
        place, chunk, left = self._place(known.id, owner), 0, bytearray()
        for data in stream:
            left += data
            while len(left) >= CHUNK_BYTES:
                self._put(place / str(chunk), bytes(left[:CHUNK_BYTES]), key, known.id, owner, chunk)
                del left[:CHUNK_BYTES]
                chunk += 1
        self._put(place / str(chunk), bytes(left), key, known.id, owner, chunk)
        write_file(place / "chunks", str(chunk + 1).encode())

    def _put(self, path: Path, plain: bytes, key: SealingKey, job: str, owner: str, chunk: int) -> None:
        write_file(path, seal(plain, key.public, what="restored", job=job, owner=owner, chunk=chunk))

    def close(self) -> None:
        """End the process that opens contributions."""
        self._checker.close()

    def erase(self, job: str) -> None:
        """Drop what came back from the mates, and when to check again."""
        for known in (self._again, self._mending):
            for place in [place for place in list(known) if place[0] == job]:
                known.pop(place, None)
        shutil.rmtree(self.server_state.settings.store / "restored" / job, ignore_errors=True)
