"""Runners by name, and the options passed on to Beam."""

import os
import re

import pytest
from apache_beam.options.pipeline_options import StandardOptions

from tests.conftest import REPOSITORY
from tokenfree.core.errors import UserError
from tokenfree.pipelines.beam import is_embedded, num_processes, runner_options
from tokenfree.pipelines.preprocess import MAX_WORKERS, choose_engine, worker_environment


def test_direct_names_the_embedded_runner_outright() -> None:
    assert runner_options("direct", None).view_as(StandardOptions).runner == "FnApiRunner"
    for given, number in ((None, 1), (1, 1), (3, 3), (0, 0), (MAX_WORKERS, MAX_WORKERS)):
        options = runner_options("direct", given)
        assert is_embedded(options)
        assert num_processes(options) == number
    assert num_processes(runner_options("direct", None, ["--direct_num_workers=2"])) == 2


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


@pytest.mark.parametrize("workers", [None, 0, 1, 3])
@pytest.mark.parametrize("runner", ["direct", "ray"])
def test_what_needs_no_beam_is_chosen_as_beam_reads_the_profile(runner: str, workers: int | None) -> None:
    engine = choose_engine(runner, workers)
    by_beam = choose_engine(runner, workers, ["--job_name=geese"])
    assert engine.workers == by_beam.workers
    assert engine.name == by_beam.name.replace("embedded", "local")
    assert engine.is_one_process == by_beam.is_one_process == (runner == "direct" and workers in (None, 1))
    assert engine.options is None


@pytest.mark.parametrize("runner", ["flink", "dataflow"])
def test_no_workers_leave_it_to_the_engine(runner: str) -> None:
    assert runner_options(runner, 0).get_all_options() == runner_options(runner, None).get_all_options()


def test_beam_options_win() -> None:
    options = runner_options("direct", 2, ["--runner=PortableRunner", "--job_endpoint=localhost:1"])
    assert options.view_as(StandardOptions).runner == "PortableRunner"


@pytest.mark.parametrize(
    ("runner", "workers", "flags", "said"),
    [
        (
            "storm",
            1,
            (),
            "--runner: there is no 'storm'; give one of dataflow, direct, flink, prism, ray, spark",
        ),
        ("direct", -1, (), "--workers: -1 is too few"),
        ("direct", 4097, (), "--workers: 4,097 is too many; give 4,096 or fewer"),
        ("direct", 1, ("--parallel=3",), "--parallel=3: no such Beam option"),  # no short form either
        ("direct", 1, ("--paralelism=3",), "--paralelism=3: no such Beam option"),
    ],
)
def test_mistakes_are_named(runner: str, workers: int, flags: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        choose_engine(runner, workers, flags)


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    with worker_environment():
        assert os.environ["PYTHONPATH"].endswith(f"{os.pathsep}/mine")
    assert os.environ["PYTHONPATH"] == "/mine"
    monkeypatch.delenv("PYTHONPATH")
    with worker_environment():
        assert os.environ["PYTHONPATH"]
    assert "PYTHONPATH" not in os.environ


def test_workers_find_the_package_that_runs() -> None:
    with worker_environment():
        assert os.environ["PYTHONPATH"].split(os.pathsep)[0] == str(REPOSITORY)
