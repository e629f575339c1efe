"""`ppca keygen` and `ppca federation`: keys, and the membership file that the four operators sign."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from .options import command
from .terminal import Terminal

app = typer.Typer(help="Manage the members of a federation, their keys, and the four servers.", no_args_is_help=True)
File = Annotated[
    Path, typer.Option("--federation", "-f", envvar="PPCA_FEDERATION", help="Membership file, such as federation.toml.")
]
IdentityFile = Annotated[
    Path, typer.Option("--identity", "-i", envvar="PPCA_IDENTITY", help="Your private key file, such as identity.key.")
]
FEDERATION, IDENTITY = Path("federation.toml"), Path("identity.key")


@command()
def keygen(
    name: Annotated[str, typer.Argument(help="Your name in the federation: lower-case letters, digits, dashes.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File of the new key.")] = IDENTITY,
) -> None:
    """Create your identity: a private key in a file that only you can read.

    Send the printed line to the person that maintains federation.toml, and compare the printed words by telephone.
    """
    from ..federation.identity import Identity, words
    from ..federation.membership import line_of

    identity = Identity.create(name, output)
    console = Terminal()
    console.print(Text(f"written: {output} (keep this private key secret, and keep a backup)"), soft_wrap=True)
    console.print(Text(f"line:    {line_of(identity)}"), soft_wrap=True, highlight=False)
    console.print(Text(f"words:   {words(identity.public)}"), soft_wrap=True)


@app.command()
@command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the federation.")],
    file: File = FEDERATION,
) -> None:
    """Create federation.toml.

    Then add four servers and the members, and let the four operators sign it.
    """
    from ..federation.identity import check_name
    from ..federation.membership import MembershipFile, render
    from ..runtime.files import write_whole

    if file.exists():
        raise ValueError(f"{file} exists. Add to it with ppca federation add, or choose another file with -f.")
    write_whole(file, render(MembershipFile(name=check_name(name), revision=1)))
    Terminal().print(Text(f"written: {file}. Next: ppca federation add, four times with --server"), soft_wrap=True)


@app.command()
@command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the member.")],
    key: Annotated[str, typer.Argument(help="Public key of the member, as printed by ppca keygen.")],
    server: Annotated[
        int | None, typer.Option(min=0, max=3, help="The member is the operator of this server (0 to 3).")
    ] = None,
    api: Annotated[str | None, typer.Option(help="Address host:port at which members reach the server.")] = None,
    mesh: Annotated[str | None, typer.Option(help="Address host:port at which other servers reach the server.")] = None,
    owner: Annotated[bool, typer.Option("--owner", help="The member owns data.")] = False,
    receiver: Annotated[bool, typer.Option("--receiver", help="The member receives results.")] = False,
    file: File = FEDERATION,
) -> None:
    """Add a member, or replace the member with this name or server number.

    All four operators must sign again. If the file had been signed, its revision number increases.
    """
    from ..federation.identity import key_of, words

    if server is None and not (owner or receiver):
        raise ValueError("say what the member is: --server 0 to 3, --owner, --receiver, or several of them.")
    if (server is not None) != (api is not None) or (server is not None) != (mesh is not None):
        raise ValueError("--server, --api and --mesh go together.")
    roles = [role for role, wanted in (("owner", owner), ("receiver", receiver)) if wanted]
    public = key_of(key)
    _changed(file, name, {"number": server, "member": name, "key": key, "api": api, "mesh": mesh}, key, roles)
    Terminal().print(Text(f"added: {name}, words: {words(public)}. Compare them over the telephone."), soft_wrap=True)


@app.command()
@command()
def remove(
    name: Annotated[str, typer.Argument(help="Name of the member.")],
    file: File = FEDERATION,
) -> None:
    """Remove a member. When the four operators have signed, its key is rejected."""
    from ..federation.membership import Membership

    if name not in Membership.load(file).keys:
        raise ValueError(f"{name} is not a member in {file}.")
    _changed(file, name, None, "", [])
    Terminal().print(Text(f"removed: {name}. All four operators sign again: ppca federation sign"), soft_wrap=True)


def _changed(file: Path, name: str, server: dict[str, object] | None, key: str, roles: list[str]) -> None:
    """Write the file anew, one revision on if anybody has signed it."""
    from ..federation import toml
    from ..federation.membership import Membership, MembershipFile, render
    from ..runtime.files import write_whole

    membership = Membership.load(file)
    old = membership.file
    number = None if server is None else server["number"]
    servers = [dict(s) for s in old.server if s.member != name and s.number != number]
    members = [dict(m) for m in old.member if m.name != name]
    former = [dict(f) for f in old.former]
    gone = {s.member: s.key for s in old.server if s.member == name or s.number == number}
    gone |= {m.name: m.key for m in old.member if m.name == name}
    if membership.signatures:  # a file that was never signed is not in use
        former += [{"name": who, "key": was} for who, was in gone.items() if was != key]
    if server is not None and number is not None:
        servers.append(server)
    if roles:
        members.append({"name": name, "key": key, "roles": tuple(roles)})
    revision = old.revision + bool(membership.signatures)
    content = {
        "name": old.name,
        "revision": revision,
        "server": tuple(servers),
        "member": tuple(members),
        "former": tuple(former),
    }
    write_whole(file, render(toml.validated(MembershipFile, content, str(file))))
    file.with_suffix(".sigs").unlink(missing_ok=True)


@app.command()
@command()
def sign(file: File = FEDERATION, identity: IdentityFile = IDENTITY) -> None:
    """Sign the membership file as one of its four operators.

    Pass the file and federation.sigs on to the next operator.
    """
    from ..federation.identity import Identity
    from ..federation.membership import SIGNATURES_FILE, Membership, statement, write_signatures

    membership, me = Membership.load(file), Identity.load(identity)
    membership.check_identity(me)
    if membership.server_of(me.name) is None:
        raise ValueError(f"{me.name} is not an operator in {file}. Only operators sign.")
    if len(membership.servers) < 4:
        raise ValueError(f"{file} has {len(membership.servers)} servers; four are needed before operators sign.")
    _show(membership)
    valid = {
        name: value
        for name, value in membership.signatures.items()
        if name in membership.keys and membership.is_signed_by(name)
    }
    write_signatures(file.with_name(SIGNATURES_FILE), valid | {me.name: me.sign(statement(membership.data))})
    signed = Membership.load(file)
    left = [s.member for s in signed.servers.values() if not signed.is_signed_by(s.member)]
    todo = f"still to sign: {' and '.join(left)}" if left else "complete: send both files to all members"
    Terminal().print(Text(f"signed as {me.name}; {todo}"), soft_wrap=True)


@app.command()
@command()
def check(file: File = FEDERATION) -> None:
    """Show the members, and whether the file is complete and signed.

    Exit code 1 if not.
    """
    from ..federation.membership import Membership

    membership = Membership.load(file)
    _show(membership)
    faults = membership.faults()
    if faults:
        raise ValueError("; ".join(faults) + ".")
    Terminal().print(Text(f"signed by all four operators; digest {membership.digest}"), soft_wrap=True)


@app.command()
@command()
def accept(
    digest: Annotated[str, typer.Argument(help="The digest that ppca federation check prints.")],
    file: File = FEDERATION,
    identity: IdentityFile = IDENTITY,
) -> None:
    """Accept a revision signed by fewer than three former operators.

    Compare the words of all keys first.

    A revision needs no such step if at least three operators of the revision in force have signed it with their keys in
    that revision. An operator accepts a
    revision on its server with ppca server run --accept.
    """
    from ..federation.identity import Identity
    from ..federation.membership import Membership
    from ..member.local_state import MemberState, default_folder

    membership, me = Membership.trusted(file), Identity.load(identity)
    membership.check_identity(me)
    if digest != membership.digest:
        raise ValueError(
            f"{file} has the digest {membership.digest}, not {digest}. Compare the file with the operators again."
        )
    MemberState(default_folder(membership.name, me.name)).revisions.take(membership, digest)
    Terminal().print(Text(f"accepted: {membership.name}, revision {membership.revision}, as {me.name}"), soft_wrap=True)


def _show(membership: object) -> None:
    from ..federation.identity import key_of, words
    from ..federation.membership import Membership

    assert isinstance(membership, Membership)
    table = Table(
        "member",
        "roles",
        "api",
        "mesh",
        "words",
        title=f"{membership.name}, revision {membership.revision}",
        title_justify="left",
    )
    for server in membership.file.server:
        roles = ", ".join([f"server {server.number}", *(r for r in membership.roles(server.member) if r != "operator")])
        table.add_row(server.member, roles, server.api, server.mesh, words(key_of(server.key)))
    for member in membership.file.member:
        if membership.server_of(member.name) is None:
            table.add_row(member.name, ", ".join(member.roles), "", "", words(key_of(member.key)))
    for former in membership.file.former:
        table.add_row(former.name, "former key: signs nothing new", "", "", words(key_of(former.key)))
    Terminal().print(table)
