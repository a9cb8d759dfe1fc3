"""The runner on Ray, without a cluster: processes of this machine stand for its workers. A real cluster is in
tests/workflows/cluster/test_local_preprocess.py."""

import contextlib
import dataclasses
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import psutil
import pytest
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import quick_config
from tokenfree.core.errors import JobError, UserError
from tokenfree.core.storage import Storage
from tokenfree.pipelines import ray as ray_workers
from tokenfree.pipelines.beam import is_embedded, is_on_ray, runner_options
from tokenfree.pipelines.preprocess import run_preprocess
from tokenfree.pipelines.ray import _Attempt, _Server
from tokenfree.preprocess.job.job import ATTEMPT, PreprocessJob, write_lines
from tokenfree.preprocess.sources.splits import find_inputs, plan_splits
from tokenfree.workflows.cli import main

LOOPBACK = "127.0.0.1"
# Those that read from a worker end with an error where it does.
threads_of_beam = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
Shards = Callable[[Path], dict[str, bytes]]


class Processes:
    """What `Workers` is to the runner, of processes on this machine."""

    made: list["Processes"] = []
    kill_after = ""  # one of the first of them is killed once there are files of this pattern
    unreached = False

    def __init__(self, cluster: Any, number: int, *, patient: bool) -> None:
        self.patient, self.number = patient, min(number or 2, cluster.room())
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.made.append(self)

    def __len__(self) -> int:
        return self.number

    def check(self, job: Any) -> None:
        self.output = Path(job.storage.url)

    def serve(self, index: int, address: str, worker_id: str) -> None:
        code = (
            "import sys; from apache_beam.runners.worker.sdk_worker import SdkHarness;"
            "SdkHarness(sys.argv[1], worker_id=sys.argv[2]).run()"
        )
        self.address = address
        self.processes[index] = subprocess.Popen([sys.executable, "-c", code, address, worker_id])
        if self.kill_after and len(self.made) == 1 and index == 1:
            threading.Thread(target=self._kill, args=(self.processes[index],), daemon=True).start()

    def ended(self) -> set[int]:
        return {index for index, process in self.processes.items() if process.poll() is not None}

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        while not list(self.output.glob(self.kill_after)):
            time.sleep(0.01)
        process.kill()

    def told(self, lost: set[int]) -> list[str]:
        return [f"lost {sorted(lost)}"]

    def check_reach(self) -> None:
        if self.unreached:
            raise JobError("a node does not reach the command")

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> type[Processes]:
    @contextlib.contextmanager
    def cluster() -> Iterator[Any]:
        yield SimpleNamespace(address=LOOPBACK, room=lambda: 2)

    monkeypatch.setattr(Processes, "made", [])
    monkeypatch.setattr(Processes, "kill_after", "")
    monkeypatch.setattr(Processes, "unreached", False)
    monkeypatch.setattr(ray_workers, "joined_cluster", cluster)
    monkeypatch.setattr(ray_workers, "check_cluster", lambda: None)
    monkeypatch.setattr(ray_workers, "Workers", Processes)
    return Processes


def test_the_bytes_are_those_of_the_direct_runner(
    corpus: Path, tmp_path: Path, read_shards: Shards, processes: type[Processes]
) -> None:
    run_preprocess(quick_config(corpus), str(tmp_path / "direct"))
    said: list[str] = []
    run_preprocess(quick_config(corpus), str(tmp_path / "ray"), runner="ray", notice=said.append)
    assert read_shards(tmp_path / "ray") == read_shards(tmp_path / "direct")
    assert said == []
    (made,) = processes.made
    assert len(made.processes) == 2
    assert made.patient
    assert [process.poll() is not None for process in made.processes.values()] == [True, True]


@threads_of_beam
def test_a_lost_worker_costs_what_it_was_at(
    corpus: Path, tmp_path: Path, read_shards: Shards, processes: type[Processes]
) -> None:
    config = quick_config(corpus, split_bytes=1_000)
    run_preprocess(config, str(tmp_path / "direct"))
    processes.kill_after = "_work/runs/*.json"
    said: list[str] = []
    run_preprocess(config, str(tmp_path / "ray"), runner="ray", notice=said.append)
    assert read_shards(tmp_path / "ray") == read_shards(tmp_path / "direct")
    assert said == ["lost [1]"]  # and not those that had to end because of it
    assert [made.patient for made in processes.made] == [True, False]


@threads_of_beam
def test_a_worker_that_does_not_reach_the_command_ends_the_job(
    corpus: Path, tmp_path: Path, processes: type[Processes]
) -> None:
    processes.kill_after, processes.unreached = "_work/job.json", True
    with pytest.raises(JobError, match="does not reach"):
        run_preprocess(quick_config(corpus), str(tmp_path / "ray"), runner="ray")
    assert len(processes.made) == 1


def test_what_a_step_fails_on_is_no_loss(tmp_path: Path, processes: type[Processes]) -> None:
    empty = tmp_path / "books.jsonl"
    said: list[str] = []
    empty.write_text('{"id": "d0", "language": "en", "text": ""}\n')
    with pytest.raises(UserError) as direct:
        run_preprocess(quick_config(empty), str(tmp_path / "out"))
    with pytest.raises(UserError, match=re.escape(str(direct.value))):
        run_preprocess(quick_config(empty), str(tmp_path / "out"), runner="ray", notice=said.append)
    assert said == []
    assert len(processes.made) == 1


def test_fewer_workers_than_asked_for_are_told(corpus: Path, tmp_path: Path, processes: type[Processes]) -> None:
    said: list[str] = []
    run_preprocess(quick_config(corpus), str(tmp_path / "ray"), runner="ray", workers=5, notice=said.append)
    assert said == ["the Ray cluster has room for 2 of 5 workers: begins with these"]


@pytest.fixture
def server() -> Iterator[Any]:
    workers: Any = SimpleNamespace()
    attempt = _Attempt(workers, LOOPBACK)
    attempt.handlers.append(SimpleNamespace(worker_id="known"))
    made = _Server(attempt, SimpleNamespace(), SimpleNamespace(get_process_bundle_descriptor=_described))
    yield made
    made.close()


def _described(request: Any) -> Any:
    return beam_fn_api_pb2.ProcessBundleDescriptor(id=request.process_bundle_descriptor_id)


@pytest.mark.parametrize("worker_id", [None, "worker_0"])
def test_the_server_takes_nobody_but_its_workers(server: Any, worker_id: str | None) -> None:
    metadata = [("worker_id", worker_id)] if worker_id else []
    with grpc.insecure_channel(f"{LOOPBACK}:{server.control_port}") as channel:
        for stream in (
            beam_fn_api_pb2_grpc.BeamFnControlStub(channel).Control,
            beam_fn_api_pb2_grpc.BeamFnDataStub(channel).Data,
            beam_fn_api_pb2_grpc.BeamFnStateStub(channel).State,
        ):
            with pytest.raises(grpc.RpcError) as raised:
                next(stream(iter(()), metadata=metadata, timeout=5))
            assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.RpcError) as raised:
            describe(channel)
        assert raised.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_the_server_takes_its_workers_and_hears_of_their_end(server: Any) -> None:
    with grpc.insecure_channel(f"{LOOPBACK}:{server.control_port}") as channel:
        call = beam_fn_api_pb2_grpc.BeamFnControlStub(channel).Control(iter(()), metadata=[("worker_id", "known")])
        server.control_handler.get_conn_by_worker_id("known").push(beam_fn_api_pb2.InstructionRequest())
        next(call)
        assert describe(channel).id == "step"
        assert server.attempt.lost == set()
        call.cancel()
    until = time.monotonic() + 10
    while not server.attempt.lost and time.monotonic() < until:
        time.sleep(0.05)
    assert server.attempt.lost == {0}


def describe(channel: Any) -> Any:
    request = beam_fn_api_pb2.GetProcessBundleDescriptorRequest(process_bundle_descriptor_id="step")
    return beam_fn_api_pb2_grpc.BeamFnControlStub(channel).GetProcessBundleDescriptor(request, timeout=5)


def test_the_server_listens_on_its_address_alone(server: Any) -> None:
    found = [one.laddr for one in psutil.Process().net_connections("inet") if one.status == psutil.CONN_LISTEN]
    (address,) = [address.ip for address in found if address.port == server.control_port]
    assert address.removeprefix("::ffff:") == LOOPBACK


def test_the_profile_is_the_embedded_runner_with_workers_in_all() -> None:
    for given, number in ((None, 0), (0, 0), (1, 1), (7, 7)):
        options = runner_options("ray", given)
        assert is_embedded(options)
        assert is_on_ray(options)
        assert options.view_as(DirectOptions).direct_num_workers == number
    assert not is_on_ray(runner_options("direct", 2))
    assert not is_on_ray(runner_options("flink", 2, ["--environment_type=RAY"]))


@pytest.mark.parametrize(
    ("ready", "number", "room", "begin", "last", "patient", "enough"),
    [
        (0, 0, 1, 500, 500, True, False),  # an autoscaler starts a machine
        (2, 0, 3, 1, 1, True, False),  # the third is starting
        (3, 0, 3, 1, 1, True, True),
        (2, 0, 3, 121, 31, True, True),  # the third has no room after all
        (2, 0, 3, 121, 5, True, False),  # the machine is slow, and they come one by one
        (2, 3, 2, 20, 20, True, False),  # a machine may be on its way
        (2, 3, 2, 40, 31, True, True),
        (2, 3, 2, 1, 1, False, True),  # a machine was lost
        (3, 3, 8, 1, 1, True, True),
    ],
)
def test_when_to_begin(
    ready: int, number: int, room: int, begin: float, last: float, patient: bool, enough: bool
) -> None:
    told = ray_workers._is_enough(ready, number, room, since_begin=begin, since_last=last, patient=patient)
    assert told is enough


def test_a_loss_is_a_line_for_each_node() -> None:
    workers: Any = object.__new__(ray_workers.Workers)
    workers._nodes = [("a", "10.0.0.1"), ("b", "10.0.0.2"), ("b", "10.0.0.2")]
    workers._cluster = SimpleNamespace(lives=lambda node: node == "a")
    assert workers.told({0, 1, 2}) == [
        "a worker on 10.0.0.1 died (out of memory?); starting again from what is committed",
        "the Ray node 10.0.0.2 was lost with 2 workers; starting again on the others from what is committed",
    ]


def test_a_node_that_does_not_see_the_files_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, config = Storage.at(str(tmp_path / "out")), quick_config(corpus)
    storage.write_json(ATTEMPT, {"id": "this"})
    splits = write_lines(
        storage, "_work/splits", (split.to_json() for split in plan_splits(config, find_inputs(config)))
    )
    job = PreprocessJob(storage.url, config, "", "", splits, "", attempt="this")
    worker: Any = object.__new__(ray_workers.Worker)
    assert worker.missing(job, [str(corpus)]) is None
    assert worker.missing(job, [str(corpus), "/nowhere"]) == "/nowhere"
    assert worker.missing(dataclasses.replace(job, attempt="other"), []) == storage.url  # a folder of the same name

    asked: list[Any] = []
    workers: Any = object.__new__(ray_workers.Workers)
    workers._nodes = [("a", "10.0.0.1")]
    workers._actors = [SimpleNamespace(missing=SimpleNamespace(remote=lambda _, paths: asked.extend(paths)))]
    monkeypatch.setattr(ray_workers.ray, "get", list)
    workers.check(job)
    assert asked == [str(corpus)]
    monkeypatch.setattr(ray_workers.ray, "get", lambda _: [str(corpus)])
    with pytest.raises(UserError, match=r"books.*: the Ray node 10\.0\.0\.1 does not see it; give an address"):
        workers.check(job)


def test_a_cluster_must_be_named_and_answer(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["preprocess", "--books", str(corpus), "--output", str(tmp_path / "out"), "--runner", "ray"]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert main(words) == 2
    assert "no Ray cluster is named; set RAY_ADDRESS=HOST:PORT" in capsys.readouterr().err
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        monkeypatch.setenv("RAY_ADDRESS", f"{LOOPBACK}:{free.getsockname()[1]}")
    assert main(words) == 2
    assert "nothing answers at RAY_ADDRESS=127.0.0.1:" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_memory_is_of_one_process(corpus: Path) -> None:
    with pytest.raises(UserError, match="other processes cannot see it"):
        run_preprocess(quick_config(corpus), "memory://out", runner="ray", workers=1)


def test_without_it_ray_is_not_imported() -> None:
    program = "import sys, tokenfree.pipelines.preprocess; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert done.stdout.strip() == "False"
