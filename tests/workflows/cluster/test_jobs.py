"""Following a job: its own status is what ends it."""

import dataclasses
import socket
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientError
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus

from tokenfree.core.errors import JobError, UserError
from tokenfree.workflows.cluster import jobs
from tokenfree.workflows.cluster.jobs import Job, Jobs


def told(status: str, exit_code: int | None = None, message: str = "") -> SimpleNamespace:
    """What Ray tells of a job."""
    more = {"entrypoint": "exec tokenfree x", "start_time": 1000, "end_time": None}
    return SimpleNamespace(
        submission_id="job", status=JobStatus(status), driver_exit_code=exit_code, message=message, **more
    )


class FakeClient:
    """Ray's client, of a job whose log comes in parts, with errors between them."""

    def __init__(self, parts: list[Any], states: Iterator[Any]) -> None:
        self.parts, self.states = parts, states

    def get_job_info(self, name: str) -> Any:
        state = next(self.states)
        if isinstance(state, Exception):
            raise state
        return state

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        """From the beginning, each time; an error comes once."""
        for number, part in enumerate(self.parts):
            if isinstance(part, Exception):
                del self.parts[number]
                raise part
            yield part


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes `Jobs` use a fake client."""

    def make(parts: list[Any], *states: Any) -> Jobs:
        monkeypatch.setattr(jobs, "JobSubmissionClient", lambda address: FakeClient(parts, iter(states)))
        monkeypatch.setattr(jobs.requests, "get", lambda *_, **__: None)
        return Jobs("http://127.0.0.1:1")

    monkeypatch.setattr(jobs, "_PAUSE", 0.0)
    return make


def test_a_job_is_followed_to_its_end(client: Any) -> None:
    running, done = told("RUNNING"), told("FAILED", 2)
    shown: list[str] = []
    job = client(["one\n", "two\n"], running, running, done).follow("job", shown.append)
    assert "".join(shown) == "one\ntwo\n"
    assert job.outcome() == (2, "")


@pytest.mark.parametrize(
    "error", [RuntimeError("WebSocket connection closed unexpectedly"), ClientError("down")]
)
def test_a_lost_connection_leaves_the_job(error: Exception, client: Any) -> None:
    with pytest.raises(JobError, match=r"http://127.0.0.1:1"):
        client(["one\n", error], told("RUNNING")).follow("job", print)


def test_a_cluster_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs._ANSWER_SECONDS <= 10
    monkeypatch.setattr(jobs, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(JobError, match=f"no Ray cluster answers at {address}"):
            Jobs(address)


def test_errors_of_ray_are_words(client: Any) -> None:
    with pytest.raises(
        UserError, match=r"there is no job x at http://127.0.0.1:1; tokenfree cluster jobs lists them"
    ):
        client([], RuntimeError("Request failed with status code 404: Job x does not exist")).get("x")
    with pytest.raises(UserError, match="requires another token than the one of this machine"):
        client([], AuthenticationError("no")).get("x")
    with pytest.raises(RuntimeError, match="something else"):
        client([], RuntimeError("something else")).get("x")


@pytest.mark.parametrize(
    ("status", "code", "message", "expected", "words"),
    [
        ("SUCCEEDED", 0, "", 0, ""),
        ("FAILED", 1, "", 1, ""),
        ("FAILED", 2, "", 2, ""),
        ("FAILED", 138, "", 138, ""),
        ("FAILED", 127, "", 1, "the cluster has no command tokenfree"),
        ("FAILED", -9, "", 1, "job job failed: exit status -9"),
        ("FAILED", None, "no room\nmore", 1, "job job failed: no room"),
        ("STOPPED", None, "", 143, "was stopped; the same command resumes"),
    ],
)
def test_the_status_is_the_jobs_own(
    status: str, code: int | None, message: str, expected: int, words: str
) -> None:
    job = Job("job", status, "tokenfree x", 1.0, 2.0, code, message)
    found, line = job.outcome()
    assert found == expected
    assert words in line
    assert bool(words) == bool(line)


def test_jobs_for_programs(client: Any) -> None:
    job = dataclasses.asdict(client([], told("RUNNING")).get("job"))
    assert job == {"name": "job", "status": "RUNNING", "command": "tokenfree x", "started": 1.0, "ended": None,
                   "exit_status": None, "message": ""}  # fmt: skip
