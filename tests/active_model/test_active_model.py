"""A fast part of the model of security with abort (docs/design/security-with-abort.md).

`python -m active_model.sweep all` in tests/ runs the whole adversary and prints counts.
"""

from __future__ import annotations

import itertools

import pytest

from active_model import sweep
from active_model.attacks import QUICK, Adversary
from active_model.demonstrations import DEMONSTRATIONS, owner_case, owner_patterns, same_view, tries, two_secrets
from active_model.network import World
from active_model.programs import FIRST, PROGRAMS, verdict
from active_model.server import CHECKS


def test_both_directions_of_a_gate_compute_the_same_function() -> None:
    """The identities behind tables and prefix gates, for all residues modulo N, shares, cuts and levels."""
    N = 16
    for a, b in itertools.product(range(N), repeat=2):  # the row shares
        for cut in range(N):
            for m, alpha in ((a, -b % N), (b, -a % N)):
                bit = int(m < cut) + int((m - cut) % N < alpha) - int(m < alpha)
                assert bit == int((a + b) % N < cut)
        for g in range(4):
            one, two = (((m >> g) - ((~d % N) >> g)) % (N >> g) for m, d in ((a, b), (b, a)))
            assert one == two
            assert (one - ((a + b) % N >> g)) % (N >> g) in (0, 1)


def test_honest_runs_are_right_and_never_abort() -> None:
    assert sweep.honest(8, 3)


def test_every_check_has_a_demonstration() -> None:
    assert DEMONSTRATIONS.keys() == CHECKS.keys()


@pytest.mark.parametrize("check", sorted(DEMONSTRATIONS))
def test_each_check_is_needed(check: str) -> None:
    assert any(tries(check, off=True)), "the attack fails without the check: it does not show that the check is needed"
    assert not any(itertools.islice(tries(check, off=False), 6)), "the attack wins although all checks are on"


@pytest.mark.parametrize("server", range(4))
def test_the_view_of_a_server_is_the_same_for_two_secrets(server: int) -> None:
    first, second = two_secrets(lambda: Adversary(server), 5, QUICK, first=server & 1)
    assert first.finished
    assert same_view(first, second)


def test_views_of_different_secrets_differ_without_fixed_masks() -> None:
    """The comparison of views can fail."""
    outcomes = [World(inputs, 5, QUICK, Adversary(0)).run(PROGRAMS["concealed"][0]) for inputs in sweep.SECRETS]
    assert not same_view(*outcomes)


def test_a_wrong_output_is_seen() -> None:
    outcome = World(FIRST, 1).run(PROGRAMS["gates"][0])
    outcome.opened[2]["all"][0] ^= 1
    assert verdict("gates", FIRST, outcome) == "WRONG"


@pytest.mark.parametrize("command", ["views", "adaptive", "frames"])
def test_lies_do_not_make_views_or_ends_depend_on_the_secret(command: str) -> None:
    assert sweep.COMMANDS[command](12, 7)


@pytest.mark.parametrize("command", ["singles", "several", "concert_cases"])
def test_lies_do_not_make_a_result_wrong(command: str) -> None:
    assert getattr(sweep, command)(12, 7)


def test_a_lying_owner_is_accepted_exactly_if_the_honest_servers_hold_a_sharing() -> None:
    some = [*itertools.islice(owner_patterns("k"), 0, 256, 11), *(p for p in owner_patterns("k") if p[1])][:32]
    found = {owner_case(QUICK, *pattern) for pattern in some}
    assert found == {"sharing accepted", "refused"}
