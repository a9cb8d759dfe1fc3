"""Following a job: nothing is shown twice when the connection was lost, and the job's own status is what ends it."""

import json
import socket
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import ClientError
from ray.exceptions import AuthenticationError
from ray.job_submission import JobStatus

from tokenfree.core.errors import UserError
from tokenfree.workflows.cluster import jobs
from tokenfree.workflows.cluster.jobs import Job, Jobs, NoAnswer, as_json, exit_status, last_line


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


def test_a_lost_connection_is_made_again_and_nothing_shown_twice(client: Any) -> None:
    running, done = told("RUNNING"), told("FAILED", 2)
    lost = RuntimeError("WebSocket connection closed unexpectedly")
    parts = ["one\n", "two\n", lost, "three\n", ClientError("down"), "four\n"]
    found = client(parts, running, running, ConnectionError("no"), running, done)
    shown, notices = [], []
    job = found.follow("job", shown.append, notices.append)
    assert "".join(shown) == "one\ntwo\nthree\nfour\n"
    assert len(notices) == 1
    assert "the job continues, and the connection is tried again" in notices[0]
    assert exit_status(job) == 2


def test_a_cluster_that_stays_away_is_given_up(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_PATIENCE", -1.0)
    with pytest.raises(NoAnswer, match=r"no Ray cluster answers at http://127.0.0.1:1"):
        client([], ConnectionError("no")).follow("job", print, print)


def test_a_cluster_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs._ANSWER_SECONDS <= 10
    monkeypatch.setattr(jobs, "_ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoAnswer, match=f"no Ray cluster answers at {address}"):
            Jobs(address)


def test_errors_of_ray_are_words(client: Any) -> None:
    with pytest.raises(UserError, match=r"there is no job x at http://127.0.0.1:1; tokenfree cluster jobs lists them"):
        client([], RuntimeError("Request failed with status code 404: Job x does not exist")).get("x")
    with pytest.raises(UserError, match="asks for another token than the one of this machine"):
        client([], AuthenticationError("no")).get("x")
    with pytest.raises(RuntimeError, match="something else"):
        client([], RuntimeError("something else")).get("x")


@pytest.mark.parametrize(
    ("status", "code", "message", "expected", "words"),
    [
        ("SUCCEEDED", 0, "", 0, ""),
        ("FAILED", 1, "", 1, ""),
        ("FAILED", 2, "", 2, ""),
        ("FAILED", 127, "", 1, "the cluster has no command tokenfree"),
        ("FAILED", -9, "", 1, "ended with status -9; look for a lack of memory"),
        ("FAILED", None, "no room\nmore", 1, "job job failed: no room"),
        ("STOPPED", None, "", 1, "was stopped; the same command resumes"),
    ],
)
def test_the_status_is_the_jobs_own(status: str, code: int | None, message: str, expected: int, words: str) -> None:
    job = Job("job", status, "tokenfree x", 1.0, 2.0, code, message)
    assert exit_status(job) == expected
    assert words in last_line(job)
    assert bool(words) == bool(last_line(job))


def test_jobs_for_programs(client: Any) -> None:
    (job,) = json.loads(as_json([client([], told("RUNNING")).get("job")]))["jobs"]
    assert job == {"name": "job", "status": "RUNNING", "command": "tokenfree x", "started": 1.0, "ended": None,
                   "exit_status": None, "message": ""}  # fmt: skip
