"""`ppca doctor`: whether this machine can take part in its federation, as a member or as the operator of a server.

Nothing is changed anywhere. Every server is looked at, whatever is wrong with another one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..federation.build import build
from ..federation.errors import FederationError
from ..federation.identity import Identity, words
from ..federation.membership import SERVERS, Membership, ServerEntry, address
from ..federation.serverfile import ServerSettings
from ..transport import CertificateError
from ..transport.pinned import PinnedTls, issue_leaf
from . import doctor_files
from .doctor_links import Broken, DoctorConnection, Hello, Refused, mesh_seconds, resolved
from .doctor_report import Findings
from .local_state import default_folder

SKEW_KNOWN, SKEW_WRONG = 10.0, 120.0
"""Seconds of clock skew above which a note, or a problem, is reported. TLS certificates are valid from five minutes
before they are issued. With a larger skew members reject each other.
"""

LEAF_HOURS = 6
"""A certificate that expires in fewer hours is noted. Servers renew their 24-hour certificates every 12 hours."""


@dataclass(frozen=True)
class CheckedFiles:
    """Files of the member that runs the checks.

    settings: of its server, if it is an operator. state: folder of its job keys and unsent shares (None: the default).
    """

    federation: Path
    identity: Path
    settings: ServerSettings | None = None
    state: Path | None = None


class Doctor:
    """Run the checks once.

    idle: seconds of silence to test (0: no test). told: gets the name of each step. bandwidth: whether to measure it.
    """

    def __init__(
        self, patient: CheckedFiles, *, idle: int = 0, told: Callable[[str], None] | None = None, bandwidth: bool = True
    ) -> None:
        self.patient = patient
        self.idle = idle
        self.bandwidth = bandwidth
        self.found = Findings()
        self._told = told or (lambda text: None)
        self._hellos: dict[int, Hello] = {}

    def examine(self) -> Findings:
        self.found.figures |= {"time": datetime.now(UTC).isoformat(), "build": build(), "links": {}}
        self._told("own files")
        membership, identity = self._files()
        self._own_machine(membership, identity)
        if membership is None or identity is None:
            return self.found
        tls = self._tls(membership, identity)
        if tls is None:
            return self.found
        own = membership.server_of(identity.name) if self.patient.settings is not None else None
        for number in sorted(membership.servers):
            self._told(f"server {number} ({membership.operators[number]})")
            self._server(membership.servers[number], tls, own)
        self._together(membership)
        return self.found

    # -- this machine ------------------------------------------------------------------------------------------------

    def _files(self) -> tuple[Membership | None, Identity | None]:
        """Load the membership file and the identity.

        None: it cannot be loaded, or the identity does not match the file.
        """
        membership = identity = None
        patient, found = self.patient, self.found
        try:
            membership = Membership.load(patient.federation)
            for fault in membership.faults():
                found.wrong("federation.toml", fault, "the four operators complete and sign the file, and pass it on")
            found.figures["federation"] = {
                "name": membership.name,
                "revision": membership.revision,
                "digest": membership.digest,
            }
        except FederationError as error:
            found.wrong("federation.toml", str(error), "get federation.toml and federation.sigs from an operator")
        try:
            identity = Identity.load(patient.identity)
            found.figures["member"] = identity.name
            if membership is not None:
                membership.check_identity(identity)
                found.good("identity", f"{identity.name}, {words(identity.public)}, is pinned by {membership.name}")
        except FederationError as error:
            found.wrong(
                "identity",
                str(error),
                "use the key that federation.toml lists for you, in a file that only you can read",
            )
            identity = None
        return membership, identity

    def _own_machine(self, membership: Membership | None, identity: Identity | None) -> None:
        settings = self.patient.settings
        doctor_files.unwritable(self.found, self.patient.federation)
        if settings is not None:
            doctor_files.server(self.found, settings, membership, identity)
        elif membership is not None and identity is not None:
            doctor_files.member(self.found, self.patient.state or default_folder(membership.name, identity.name))

    def _tls(self, membership: Membership, identity: Identity) -> PinnedTls | None:
        tls = PinnedTls(issue_leaf(identity.name, identity.key), membership.keys, membership.operators)
        try:
            tls.context(dialing=True)
        except CertificateError as error:
            self.found.wrong("own certificate", str(error), "set the clock of this machine, and use your own key")
            return None
        return tls

    # -- one server ----------------------------------------------------------------------------------------------------

    def _server(self, server: ServerEntry, tls: PinnedTls, own: int | None) -> None:
        where = f"server {server.number} ({server.member})"
        figures = self.found.figures["links"].setdefault(str(server.number), {"member": server.member})
        try:
            figures["addresses"] = resolved(address(server.api)[0])
            with closing(DoctorConnection(server, tls)) as link:
                figures["dial_seconds"] = link.dial_seconds
                self._answers(where, link)
                if server.number != own:
                    self._speed(where, link, figures)
                    if own is not None:
                        self._back(where, link, figures)
        except Broken as broken:
            self.found.wrong(where, broken.said, broken.remedy)
        if own is not None:
            self._mesh(where, server)

    def _answers(self, where: str, link: DoctorConnection) -> None:
        hello = link.hello()
        self._hellos[link.server.number] = hello
        if hello.fields.get("server") != link.server.number:
            self.found.wrong(
                where,
                f"it says it is server {hello.fields.get('server')}",
                "its operator corrects the setting `server` in server.toml",
            )
        self.found.good(where, f"reached at {link.server.api}, with the pinned key of {link.server.member}")
        hours = (link.leaf_expires - datetime.now(UTC)).total_seconds() / 3600
        if hours < LEAF_HOURS:
            self.found.note(
                where,
                f"its certificate ends in {hours:.1f} hours",
                "its operator restarts the server and sets its clock",
            )

    def _speed(self, where: str, link: DoctorConnection, figures: dict[str, object]) -> None:
        figures["round_trip_seconds"] = trip = link.round_trip()
        said = f"round trip {1000 * trip:.1f} ms"
        if self.bandwidth:
            try:
                there, back = link.bandwidth()
                figures |= {"bytes_per_second_there": there, "bytes_per_second_back": back}
                said += f", {8e-6 * there:,.0f} Mbit/s there, {8e-6 * back:,.0f} Mbit/s back"
            except Refused as refused:
                self.found.note(where, f"its bandwidth was not measured: {refused.said}", "try again later")
        if self.idle:
            self._told(f"{where}, {self.idle} s of silence")
            link.silence(self.idle)
            figures["silence_seconds"] = self.idle
            said += f"; {self.idle} s of silence do no harm"
        self.found.good(where, said)

    def _back(self, where: str, link: DoctorConnection, figures: dict[str, object]) -> None:
        """Check that the other server reaches both ports of this one. Only if this machine runs a server."""
        figures["back"] = back = link.reach()
        for port in ("api", "mesh"):
            if not back.get(port, {}).get("up"):
                self.found.wrong(
                    where,
                    f"it does not reach the {port} port of this server ({back.get(port, {}).get('why', 'no reason given')})",
                    "start this server, open its port in your firewall, and check your line of federation.toml",
                )

    def _mesh(self, where: str, server: ServerEntry) -> None:
        try:
            seconds = mesh_seconds(server)
            self.found.figures["links"][str(server.number)]["mesh_dial_seconds"] = seconds
            self.found.good(where, f"mesh port {server.mesh} open, dialed in {1000 * seconds:.1f} ms")
        except Broken as broken:
            self.found.wrong(where, broken.said, broken.remedy)

    # -- all servers ---------------------------------------------------------------------------------------------------

    def _together(self, membership: Membership) -> None:
        for number, hello in self._hellos.items():
            self._revision(f"server {number} ({membership.operators[number]})", hello, membership)
        self._builds(membership)
        self._clocks(membership)
        if len(self._hellos) == len(SERVERS) and self.found.sound:
            self.found.good("all servers", f"revision {membership.revision} and build {build()} everywhere")

    def _revision(self, where: str, hello: Hello, membership: Membership) -> None:
        theirs, digest = hello.fields.get("revision"), hello.fields.get("digest")
        if digest == membership.digest:
            return
        said = f"it has revision {theirs} of the federation, you have {membership.revision}"
        if theirs == membership.revision:
            self.found.wrong(
                where, f"{said}, with other content", "operators compare the two files and sign a new revision"
            )
        elif isinstance(theirs, int) and theirs > membership.revision:
            self.found.wrong(where, said, "get the new federation.toml and federation.sigs from an operator")
        else:
            self.found.wrong(where, said, "send its operator federation.toml and federation.sigs; no restart is needed")

    def _builds(self, membership: Membership) -> None:
        for number, hello in self._hellos.items():
            theirs = str(hello.fields.get("build"))[:80]
            self.found.figures["links"][str(number)]["build"] = theirs
            if theirs != build():
                self.found.wrong(
                    f"server {number} ({membership.operators[number]})",
                    f"it runs build {theirs}, here is {build()}",
                    "all members install the same wheel, then operators restart their servers",
                )

    def _clocks(self, membership: Membership) -> None:
        """Compare clocks. If at least three servers answer, the median of their clocks counts as correct, otherwise the
        clock of this machine.
        """
        skews = {number: hello.skew for number, hello in self._hellos.items()}
        own = statistics.median(skews.values()) if len(skews) > 2 else 0.0
        if abs(own) > SKEW_KNOWN:
            self._clock("this machine", -own)
        for number, skew in skews.items():
            self.found.figures["links"][str(number)]["clock_skew_seconds"] = skew
            if abs(skew - own) > SKEW_KNOWN:
                self._clock(f"server {number} ({membership.operators[number]})", skew - own)

    def _clock(self, where: str, skew: float) -> None:
        said = f"its clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}"
        remedy = "set it by the network (chrony, systemd-timesyncd)"
        (self.found.wrong if abs(skew) > SKEW_WRONG else self.found.note)(where, said, remedy)
