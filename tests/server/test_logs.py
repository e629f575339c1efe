"""What a server's log says of failures: the type of an exception and places in the code, never its text."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ppca.jobs.errors import Refusal
from ppca.protocol import DifferentJobs
from ppca.runtime.failure import SUSPECT, Failure
from ppca.server.attempts import AttemptRunner
from ppca.server.logs import JsonFormatter

SECRET = "a share, 31415926"


def logged(failure: Failure, caplog: pytest.LogCaptureFixture) -> tuple[dict[str, Any], dict[str, Any]]:
    """The line in the log, and what is published, of an attempt that failed."""
    published: dict[str, Any] = {}
    attempts = AttemptRunner.__new__(AttemptRunner)
    server_state: Any = SimpleNamespace(server=2, publish=lambda kind, job, **about: published.update(about))
    attempts.server_state = server_state
    with caplog.at_level(logging.WARNING, "ppca.job_runner"):
        attempts.end("job", 3, "failed", failure.reason, failure=failure)
    (record,) = caplog.records
    return json.loads(JsonFormatter().format(record)), published


def raised(error: Exception) -> Failure:
    """Its failure as it comes from the process of a worker."""

    def broken_step() -> None:
        raise error

    try:
        broken_step()
    except Exception as caught:
        return Failure.from_fields(2, vars(Failure.of(2, 7, caught)))
    raise AssertionError


def test_an_exception_of_a_program_is_named_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    line, published = logged(raised(ZeroDivisionError(SECRET)), caplog)
    assert line["error"] == "ZeroDivisionError"
    assert line["at"].startswith("broken_step:")
    assert line["reason"] == published["why"] == "the program failed there"
    assert "31415926" not in json.dumps(line)
    assert "ZeroDivisionError" not in json.dumps(published)  # what others are told is as before


def test_a_refusal_says_why(caplog: pytest.LogCaptureFixture) -> None:
    line, _ = logged(raised(Refusal("too few rows")), caplog)
    assert (line["error"], line["reason"]) == ("Refusal", "too few rows")


def test_a_server_that_claims_another_job_does_not_end_the_job() -> None:
    """Sixteen wrong bytes of one server, which no one signs, made the others give a job up for good."""
    found = Failure.of(2, 0, DifferentJobs("server 1 runs another job"))
    assert (found.final, found.rank, found.reason) == (False, SUSPECT, "server 1 runs another job")


def test_a_failure_without_an_exception_has_no_empty_fields(caplog: pytest.LogCaptureFixture) -> None:
    line, _ = logged(Failure(2, "this server stopped the attempt"), caplog)
    assert not {"error", "at"} & line.keys()


def test_an_exception_of_the_server_itself(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise KeyError(SECRET)
    except KeyError:
        logging.getLogger("ppca.job_runner").exception("attempt", extra={"job": "job"})
    line = json.loads(JsonFormatter().format(caplog.records[0]))
    assert line["error"] == "KeyError"
    assert line["at"].startswith("test_an_exception_of_the_server_itself:")
    assert "31415926" not in json.dumps(line)
