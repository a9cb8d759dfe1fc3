"""Profiles of `ray up`: Ray accepts those that come with tokenfree, and mistakes in one are reported."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY
from tokenfree.core.errors import SettingsError, UserError
from tokenfree.workflows.cluster import profiles

Filled = Callable[..., str]
CLOUDS = ("aws", "azure", "gcp")


def test_there_is_one_for_each_place() -> None:
    assert profiles.names() == ["aws", "azure", "gcp", "onpremise"]
    assert all(len(f"  {name:<12}{profiles.about(name)}") < 80 for name in profiles.names())


@pytest.mark.parametrize("name", profiles.names())
def test_rays_own_checks_pass(name: str, filled: Filled) -> None:
    """The schema, and what `ray up` fills in before it looks at it again."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    profile = profiles.read(filled(name))
    validate_config(prepare_config(dict(profile.mapping)))
    assert profiles.asks_for_token(profile)
    never = [line for line in profiles.warnings(profile) if "was never executed" in line]
    assert profiles.warnings(profile) == never
    assert bool(never) == (name in ("azure", "gcp")) == ("never executed" in profiles.about(name))


@pytest.mark.parametrize("name", profiles.names())
def test_a_template_is_not_started(name: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"copy it: tokenfree cluster profiles {name} > {name}.yaml"
    ) as told:
        profiles.read(name)
    places = set(profiles._PLACE.findall(yaml.safe_dump(yaml.safe_load(profiles.find(name).read_text()))))
    assert places
    assert all(any(place in problem for problem in told.value.problems) for place in places)


@pytest.mark.parametrize("name", CLOUDS)
def test_clouds_have_spot_first_limits_and_an_idle_time(name: str, filled: Filled) -> None:
    mapping = profiles.read(filled(name)).mapping
    workers = {key: node for key, node in mapping["available_node_types"].items() if key != "head"}
    first, second = sorted(workers, key=lambda key: -workers[key]["priority"])
    assert "spot" in str(workers[first]["node_config"]).lower()
    assert "spot" not in str(workers[second]["node_config"]).lower()
    assert all(node["min_workers"] == 0 for node in workers.values())
    assert mapping["max_workers"] <= 8
    assert mapping["idle_timeout_minutes"] <= 10
    assert mapping["available_node_types"]["head"]["resources"] == {"CPU": 0}


@pytest.mark.parametrize("name", profiles.names())
def test_no_secret_stands_in_a_profile(name: str) -> None:
    text = profiles.find(name).read_text(encoding="utf-8")
    assert not re.search(r"(?i)(secret|password|access_key|BEGIN [A-Z ]*KEY|AKIA[0-9A-Z]{16})", text)
    assert "auth_token" in text  # by the path of its file


def break_in(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets a value of a nested mapping."""

    def change(mapping: dict[str, Any]) -> None:
        for key in path[:-1]:
            mapping = mapping[key]
        mapping[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (break_in("max_workesr", value=3), r"'max_workesr' was unexpected"),
        (break_in("max_workers", value="many"), r"max_workers: 'many' is not of type 'integer'"),
        (break_in("provider", value={}), r"provider: 'type' is a required property"),
        (
            break_in("head_node_type", value="boss"),
            r"head_node_type: should be one of available_node_types, gpu-on",
        ),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(change: Any, words: str, filled: Filled) -> None:
    with pytest.raises(UserError, match=words):
        profiles.read(filled("aws", change))


def test_what_costs_money_is_named(filled: Filled) -> None:
    aws = profiles.read(filled("aws"))
    assert profiles.costs(aws) == [
        "gpu-on-demand: 0 to 4 x g5.2xlarge, as jobs need them",
        "gpu-spot: 0 to 8 x g5.2xlarge (spot), as jobs need them",
        "head: one m6i.xlarge, until tokenfree cluster down",
        "at most 8 workers together; disks, addresses and traffic come on top",
    ]
    assert aws.is_paid
    for name, machine in (("gcp", "g2-standard-8 (spot)"), ("azure", "Standard_NC8as_T4_v3 (spot)")):
        assert machine in "\n".join(profiles.costs(profiles.read(filled(name))))
    ours = profiles.read(filled("onpremise"))
    assert not ours.is_paid
    assert profiles.costs(ours) == ["Ray on 2 machines of your own: filled, filled"]


def test_an_open_dashboard_and_a_missing_token_are_seen(filled: Filled) -> None:
    def opened(mapping: dict[str, Any]) -> None:
        starts = mapping["head_start_ray_commands"]
        starts[-1] = starts[-1].replace("127.0.0.1", "0.0.0.0").replace("RAY_AUTH_MODE=token ", "")

    profile = profiles.read(filled("aws", opened))
    assert profiles.warnings(profile) == [
        "warning: the dashboard is to listen on 0.0.0.0; Ray runs the code of anyone who reaches it"
    ]
    assert not profiles.asks_for_token(profile)


def test_files_that_are_no_profiles(folder: Any) -> None:
    (folder / "list.yaml").write_text("[1]")
    (folder / "odd.yaml").write_text("{")
    for source, words in (
        ("list.yaml", "should be a mapping"),
        ("odd.yaml", "not YAML"),
        ("awz", r"no such file and no profile of tokenfree \(did you mean 'aws'\?\)"),
    ):
        with pytest.raises(UserError, match=words):
            profiles.read(source)


def test_the_page_says_of_each_what_was_executed() -> None:
    page = (REPOSITORY / "docs" / "tested.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for name in profiles.names():
        assert any(f"`ray_profiles/{name}.yaml`" in row for row in rows), name
