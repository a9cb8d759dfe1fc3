"""Runners by name, and the options passed on to Beam."""

import os
import re

import pytest
from apache_beam.options.pipeline_options import StandardOptions

from tests.conftest import REPOSITORY
from tokenfree.core.errors import UserError
from tokenfree.pipelines.beam import is_embedded, runner_options
from tokenfree.pipelines.preprocess import choose_engine, worker_environment


def test_beam_names_the_embedded_runner_outright() -> None:
    for workers in (None, 1):
        options = runner_options("beam", workers)
        assert options.view_as(StandardOptions).runner == "FnApiRunner"
        assert is_embedded(options)
        assert choose_engine("beam", workers).is_one_process


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
def test_what_needs_no_beam_takes_no_options_of_it(runner: str, workers: int | None) -> None:
    engine = choose_engine(runner, workers)
    assert engine.workers == (workers if workers is not None else int(runner == "direct"))
    assert engine.is_one_process == (runner == "direct" and workers in (None, 1))
    assert engine.options is None
    with pytest.raises(UserError, match=f"^--job_name=geese: --runner {runner} takes no options of Beam"):
        choose_engine(runner, workers, ["--job_name=geese"])


@pytest.mark.parametrize("runner", ["flink", "dataflow"])
def test_no_workers_leave_it_to_the_engine(runner: str) -> None:
    assert runner_options(runner, 0).get_all_options() == runner_options(runner, None).get_all_options()


def test_beam_options_win() -> None:
    options = runner_options("beam", None, ["--runner=PortableRunner", "--job_endpoint=localhost:1"])
    assert options.view_as(StandardOptions).runner == "PortableRunner"


@pytest.mark.parametrize(
    ("runner", "workers", "flags", "said"),
    [
        (
            "storm",
            1,
            (),
            "--runner: there is no 'storm'; give one of direct, ray, beam, dataflow, flink, prism, spark",
        ),
        ("direct", -1, (), "--workers: -1 is too few"),
        ("direct", 4097, (), "--workers: 4,097 is too many; give 4,096 or fewer"),
        ("beam", 1, ("--parallel=3",), "--parallel=3: no such Beam option"),  # no short form either
        ("beam", 1, ("--paralelism=3",), "--paralelism=3: no such Beam option"),
        ("flink", 1, ("--job_name=x", "job_name=y"), "job_name=y: no such Beam option"),
        ("beam", 2, (), "--workers 2: Beam's embedded runner is one process"),
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
