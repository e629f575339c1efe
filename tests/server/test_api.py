"""A server's admission over real TLS: who gets in, what each may see, and what badly made requests do to it: nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.federation import IDENTITIES, OWNERS, RECEIVER, job, make, membership, put_membership
from harness.one_server import HELLO, OneServer, asked
from harness.waiting import PATIENCE
from ppca.federation.errors import NotReached
from ppca.federation.membership import Membership
from ppca.transport import issue_leaf, pinned
from ppca.transport.pinned import LEAF_VALIDITY, PinnedTls

# -- who gets in -----------------------------------------------------------------------------------------------------


def test_a_member_is_greeted(seat: OneServer) -> None:
    status, data = seat.client("north").request("GET", "/v1/hello")
    assert status == 200
    found = json.loads(data)
    assert (found["you"], found["member"], found["digest"]) == ("north", "alpha", seat.membership.digest)


def test_without_a_certificate_nobody_is_answered(seat: OneServer) -> None:
    assert asked(seat.raw(None), HELLO) == b""


def test_an_outsiders_key_is_not_answered(seat: OneServer) -> None:
    assert asked(seat.raw("nobody"), HELLO) == b""


def test_a_members_name_with_another_key_is_not_answered(seat: OneServer) -> None:
    leaf = issue_leaf("north", IDENTITIES["nobody"].key)
    tls = PinnedTls(leaf, {"alpha": IDENTITIES["alpha"].public, "north": IDENTITIES["nobody"].public})
    sock = tls.context(dialing=True).wrap_socket(socket.create_connection(("127.0.0.1", seat.port), PATIENCE))
    assert asked(sock, HELLO) == b""


def test_plain_http_is_not_answered(seat: OneServer) -> None:
    with socket.create_connection(("127.0.0.1", seat.port), PATIENCE) as sock:
        sock.sendall(HELLO)
        with contextlib.suppress(OSError):
            assert b"200" not in sock.recv(1000)


def test_an_expired_leaf_is_refused(seat: OneServer) -> None:
    old = issue_leaf("north", IDENTITIES["north"].key, start=datetime.now(UTC) - timedelta(days=3))
    with pytest.raises(NotReached, match="issue a new one"):
        seat.client("north", old).request("GET", "/v1/hello")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    from ppca.transport.pinned import _load_leaf

    _load_leaf(context, old)
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", seat.port), PATIENCE))
    assert asked(sock, HELLO) == b""


def test_a_leaf_that_expires_on_a_standing_connection(seat: OneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = seat.client("north")
    assert client.request("GET", "/v1/hello")[0] == 200
    connection = client._connection
    assert connection is not None

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + LEAF_VALIDITY

    monkeypatch.setattr(pinned, "datetime", Later)
    connection.request("GET", "/v1/hello")
    answer = connection.getresponse()
    assert answer.status == 403
    assert "has expired" in json.loads(answer.read())["error"]


def renewed(seat: OneServer, new: Membership) -> None:
    put_membership(seat.folder, new)
    assert seat.server_state.renew()
    seat.server_state.renew_tls()


def test_a_removed_member_is_out_on_the_same_connection(seat: OneServer) -> None:
    client = seat.client("north")
    assert client.request("GET", "/v1/hello")[0] == 200
    renewed(seat, membership(2, left_out=("north",), ports=[seat.port, 1, 2, 3]))
    status, data = client.request("GET", "/v1/hello")
    assert status == 403
    assert "north" in json.loads(data)["error"]
    assert seat.client("south").request("GET", "/v1/hello")[0] == 200


def test_a_new_key_puts_out_who_has_the_old_one(seat: OneServer) -> None:
    """A stolen key is of no use from the moment on that another one is pinned, not even on connections that stand."""
    client = seat.client("north")
    assert client.request("GET", "/v1/hello")[0] == 200
    from ppca.federation.identity import key_text

    members = tuple(
        m.model_dump() | ({"key": key_text(IDENTITIES["nobody"].public)} if m.name == "north" else {})
        for m in seat.membership.file.member
    )
    renewed(seat, membership(2, member=members, ports=[seat.port, 1, 2, 3]))
    assert client.request("GET", "/v1/hello")[0] == 403


def test_a_stream_of_news_ends_with_the_membership(seat: OneServer) -> None:
    client = seat.client("north")
    stream = client.events()
    seat.tell(seat.story[0])
    assert next(stream)[0] == "object"
    renewed(seat, membership(2, left_out=("north",), ports=[seat.port, 1, 2, 3]))
    seat.server_state.show(seat.job.id, "half", 0.5, 1)
    assert [kind for kind, _ in stream if kind in ("object", "progress")] == []


def test_an_older_or_unsigned_federation_changes_nothing(seat: OneServer) -> None:
    ports = [seat.port, 1, 2, 3]
    renewed(seat, membership(3, ports=ports))
    for worse in (
        membership(2, ports=ports),
        membership(3, ports=ports, left_out=("west",)),
        Membership(membership(4, ports=ports).data, {}),
    ):
        put_membership(seat.folder, worse)
        assert not seat.server_state.renew()
        assert seat.server_state.membership.revision == 3


# -- what each may see -----------------------------------------------------------------------------------------------


def test_who_has_no_part_in_a_job_sees_nothing_of_it(seat: OneServer) -> None:
    seat.tell(*seat.story)
    outside, inside = seat.client("visitor"), seat.client("north")
    for item in seat.story:
        path = f"/v1/objects/{item.digest}"
        assert outside.request("GET", path)[0] == outside.request("HEAD", path)[0] == 404
        assert inside.request("HEAD", path)[0] == 200
    assert inside.request("GET", f"/v1/objects/{seat.story[0].digest}") == (200, seat.story[0].data)
    assert outside.request("GET", f"/v1/jobs/{seat.job.id}/objects")[0] == 404
    assert json.loads(outside.request("GET", "/v1/jobs")[1]) == []
    assert len(json.loads(inside.request("GET", "/v1/jobs")[1])) == 1
    told = outside.events()
    assert next(told)[0] == "place", "it learns how many objects there are, and nothing of them"


def test_owners_do_not_read_each_others_jobs(seat: OneServer) -> None:
    other = job(seat.membership, "other", owners=("spare", "visitor", "west"), receivers={"spare": ["model"]})
    item = make("spare", "job", other, other.data)
    seat.tell(item, seat.story[0])
    north = seat.client("north")
    assert north.request("GET", f"/v1/objects/{item.digest}")[0] == 404
    assert [each["id"] for each in json.loads(north.request("GET", "/v1/jobs")[1])] == [seat.job.id]
    assert len(json.loads(seat.client("west").request("GET", "/v1/jobs")[1])) == 2


@pytest.mark.parametrize("path", ["/v1/inventory", "/v1/restore/{job}/north", "/v1/restore-model/{job}"])
def test_what_only_servers_get(path: str, seat: OneServer) -> None:
    seat.tell(*seat.story)
    for name in (*OWNERS, RECEIVER, "visitor"):
        status, data = seat.client(name).request("GET", path.format(job=seat.job.id))
        assert status == 409
        assert "only servers" in json.loads(data)["error"]


def test_shares_are_not_restored_to_the_diagonal(seat: OneServer) -> None:
    seat.tell(*seat.story)
    status, data = seat.client("delta").request("GET", f"/v1/restore/{seat.job.id}/north")
    assert status == 409
    assert "do not share summands" in json.loads(data)["error"]


def test_headers_come_with_the_bytes_that_decide(seat: OneServer) -> None:
    seat.tell(*seat.story)
    found = json.loads(seat.client("north").request("GET", f"/v1/jobs/{seat.job.id}/objects")[1])["objects"]
    assert {each["kind"] for each in found if "data" not in each} == {"envelope"}
    last = found[-1]["seq"]
    more = json.loads(seat.client("north").request("GET", f"/v1/jobs/{seat.job.id}/objects?after={last}")[1])
    assert more["objects"] == []
