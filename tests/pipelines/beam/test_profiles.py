"""Profiles of runners: those that come with the package, and files of the user's own."""

import re
from pathlib import Path

import pytest
from apache_beam.options.pipeline_options import FlinkRunnerOptions, PipelineOptions, PortableOptions

from tests.conftest import SOURCE
from tokenfree.core.errors import UserError
from tokenfree.pipelines.beam import profile_names, read_profile, runner_options
from tokenfree.workflows.commands import preprocess


def test_each_file_is_a_runner_of_the_command() -> None:
    files = sorted(path.stem for path in (SOURCE / "pipelines" / "beam_profiles").glob("*.yaml"))
    assert files == profile_names() == ["beam", "dataflow", "flink", "prism", "spark"]
    assert sorted(preprocess.ARGUMENTS["--runner"]["choices"]) == sorted([*files, "direct", "ray"])


@pytest.mark.parametrize("name", profile_names())
def test_beam_knows_all_options_of_a_profile_as_the_profile_means_them(name: str) -> None:
    profile = read_profile(str(SOURCE / "pipelines" / "beam_profiles" / f"{name}.yaml"))
    options = runner_options(name, None)
    known = options.get_all_options()
    assert known["runner"] == profile.runner
    for option, value in profile.options.items():
        if option in known:  # the others are for the job server
            assert str(known[option]) == str(value), option


def test_what_is_passed_on_wins_then_workers_then_the_profile(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "runner: FlinkRunner\nflink_master: here:1\nparallelism: 3\njob_name:\n"
    )

    def flink(workers: int | None, *given: str) -> FlinkRunnerOptions:
        options = runner_options("beam", workers, given, profile=str(tmp_path / "ours.yaml"))
        return options.view_as(FlinkRunnerOptions)

    assert flink(None).parallelism == 3
    assert flink(5).parallelism == 5
    assert flink(0).parallelism == 3
    assert flink(5, "--parallelism=7", "--flink_master=there:2").parallelism == 7
    assert flink(None, "--flink_master=there:2").flink_master == "there:2"
    assert flink(None).view_as(PipelineOptions).get_all_options()["job_name"] is None


def test_nought_is_a_number_and_no_flag(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "runner: FlinkRunner\nsdk_worker_parallelism: 0\nmax_bundle_size: 1\n"
    )
    assert read_profile(str(tmp_path / "ours.yaml")).flags() == [
        "--sdk_worker_parallelism=0",
        "--max_bundle_size=1",
    ]


def test_values_become_flags(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "runner: PortableRunner\nexperiments: [one, two]\nuse_public_ips: false\nno_auth: true\n"
        "environment_type: PROCESS\nenvironment_config: {command: /opt/boot, env: {LANG: C}}\n"
    )
    profile = read_profile(str(tmp_path / "ours.yaml"))
    assert profile.flags() == [
        "--experiments=one",
        "--experiments=two",
        "--no_use_public_ips",
        "--no_auth",
        "--environment_type=PROCESS",
        '--environment_config={"command": "/opt/boot", "env": {"LANG": "C"}}',
    ]
    options = runner_options("beam", None, profile=str(tmp_path / "ours.yaml"))
    assert options.view_as(PortableOptions).environment_config == profile.flags()[-1].partition("=")[2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runner: [", "ours.yaml: no YAML ("),
        ("- a", "ours.yaml: no profile; it needs a line such as 'runner: FlinkRunner'"),
        ("flink_master: a", "ours.yaml: no profile; it needs a line such as 'runner: FlinkRunner'"),
        ("runner: FlinkRunner\n--flink_master: a", "ours.yaml: --flink_master: no name of an option"),
        ("runner: FlinkRunner\n8081: a", "ours.yaml: 8081: no name of an option"),
        ("runner: FlinkRunner\nflink_mastr: a", "ours.yaml: --flink_mastr=a: no such Beam option"),
        (
            "runner: FlinkRunner\nparallelism: many",
            "ours.yaml: argument --parallelism: invalid int value: 'many'",
        ),
        (b"runner: \xff", "cannot be read (not UTF-8)"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_bad_profiles_are_named(tmp_path: Path, text: str | bytes | None, said: str) -> None:
    path = tmp_path / "ours.yaml"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=re.escape(said)):
        runner_options("beam", None, profile=str(path))


def test_options_of_job_servers_are_let_through_and_misspelt_ones_are_not() -> None:
    runner_options("flink", None, ["--number_of_execution_retries=3"])
    with pytest.raises(UserError, match="no such Beam option"):
        runner_options("flink", None, ["--number_of_execution_retrys=3"])


@pytest.mark.parametrize(
    "flag", ["--s3_secret_access_key=geese", "--azure_connection_string=AccountKey=geese"]
)
def test_secrets_are_refused_and_not_repeated(flag: str) -> None:
    with pytest.raises(UserError, match="no secret may be among them") as refused:
        runner_options("flink", None, [flag])
    assert "geese" not in str(refused.value)
