"""Runners by name, and the options passed on to Beam."""

import logging
import os
import re
import threading

import grpc
import pytest
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from tests.conftest import REPOSITORY
from tokenfree.core.errors import UserError
from tokenfree.pipelines.beam import MOST_WORKERS, is_embedded, make_pipeline, runner_options, worker_environment
from tokenfree.pipelines.direct_runner import DeadWorkerError, ProcessRunner, is_dead_worker


def test_direct_names_the_embedded_runner_outright() -> None:
    options = runner_options("direct", 1)
    assert options.view_as(StandardOptions).runner == "FnApiRunner"
    assert options.view_as(DirectOptions).direct_running_mode == "in_memory"
    several = runner_options("direct", 3)
    assert several.view_as(DirectOptions).direct_num_workers == 3
    assert several.view_as(DirectOptions).direct_running_mode == "multi_processing"
    assert runner_options("direct", MOST_WORKERS).view_as(DirectOptions).direct_num_workers == MOST_WORKERS
    assert runner_options("direct", 0).view_as(DirectOptions).direct_num_workers == 0
    assert isinstance(make_pipeline(several).runner, FnApiRunner)
    assert several.view_as(DirectOptions).direct_running_mode == "multi_processing"  # made for another attempt too


@pytest.mark.parametrize(
    ("runner", "name", "flag"),
    [
        ("flink", "FlinkRunner", "parallelism"),
        ("dataflow", "DataflowRunner", "max_num_workers"),
        ("spark", "SparkRunner", None),
        ("prism", "PrismRunner", None),
    ],
)
def test_other_runners_take_workers_their_own_way(runner: str, name: str, flag: str | None) -> None:
    options = runner_options(runner, 7, ("--job_name=geese",)).get_all_options()
    assert options["runner"] == name
    assert options["job_name"] == "geese"
    assert flag is None or options[flag] == 7


@pytest.mark.parametrize("runner", ["flink", "dataflow"])
def test_no_workers_leave_it_to_the_engine(runner: str) -> None:
    assert runner_options(runner, 0).get_all_options() == runner_options(runner, None).get_all_options()


def test_only_processes_of_the_embedded_runner_are_ours() -> None:
    embedded = runner_options("direct", 2)
    assert is_embedded(embedded)
    assert isinstance(make_pipeline(embedded).runner, ProcessRunner)
    for options in (
        runner_options("direct", 1),
        runner_options("flink", 2, ["--direct_running_mode=multi_processing"]),
    ):
        assert not isinstance(make_pipeline(options).runner, ProcessRunner)
    assert not is_embedded(options)


def test_beam_options_win() -> None:
    options = runner_options("direct", 2, ["--runner=PortableRunner", "--job_endpoint=localhost:1"])
    assert options.view_as(StandardOptions).runner == "PortableRunner"


@pytest.mark.parametrize(
    ("runner", "workers", "flags", "said"),
    [
        ("storm", 1, (), "--runner: there is no 'storm'; give one of dataflow, direct, flink, prism, ray, spark"),
        ("direct", -1, (), "--workers: -1 is too few"),
        ("direct", 4097, (), "--workers: 4,097 is too many; give 4,096 or fewer"),
        ("direct", 1, ("--parallel=3",), "--parallel=3: no such Beam option"),  # no short form either
        ("direct", 1, ("--paralelism=3",), "--paralelism=3: no such Beam option"),
    ],
)
def test_mistakes_are_named(runner: str, workers: int, flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        runner_options(runner, workers, flags)


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    with worker_environment(runner_options("direct", 1)):
        assert os.environ["PYTHONPATH"].endswith(f"{os.pathsep}/mine")
    assert os.environ["PYTHONPATH"] == "/mine"
    monkeypatch.delenv("PYTHONPATH")
    with worker_environment(runner_options("direct", 1)):
        assert os.environ["PYTHONPATH"]
    assert "PYTHONPATH" not in os.environ


def test_the_embedded_runner_keeps_silent_while_it_runs_and_others_do_not() -> None:
    beam, options = logging.getLogger("apache_beam"), logging.getLogger("apache_beam.options.pipeline_options")
    before = beam.level, options.level
    with worker_environment(runner_options("direct", 1)):
        assert (beam.level, options.level) == (logging.CRITICAL, logging.ERROR)
    assert (beam.level, options.level) == before
    with worker_environment(runner_options("flink", 1)):
        assert (beam.level, options.level) == (before[0], logging.ERROR)
    assert (beam.level, options.level) == before


def test_workers_find_the_package_that_runs() -> None:
    with worker_environment(runner_options("direct", 1)):
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(REPOSITORY)


def test_only_the_death_of_a_worker_is_one() -> None:
    assert is_dead_worker(DeadWorkerError("code -9"))
    assert is_dead_worker(RuntimeError("Channel closed prematurely."))
    assert not is_dead_worker(RuntimeError("out of geese"))


@pytest.mark.parametrize(
    ("name", "error", "is_told"),
    [
        ("beam_control_read", grpc.RpcError(), False),
        ("read_grpc_client_inputs", grpc.RpcError(), False),
        ("beam_control_read", ValueError("else"), True),
        ("another", grpc.RpcError(), True),
    ],
)
def test_only_the_broken_streams_of_workers_are_not_told(
    name: str, error: Exception, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def fail() -> None:
        raise error

    with worker_environment(runner_options("direct", 2)):
        thread = threading.Thread(target=fail, name=name)
        thread.start()
        thread.join()
    assert [each.exc_value for each in told] == [error] * is_told
    assert threading.excepthook == told.append
