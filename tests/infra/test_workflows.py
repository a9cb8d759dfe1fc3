"""The workflows of the code host: what actionlint says, that actions are pinned, and that jobs end."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
each = pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)


@each
def test_actionlint_finds_nothing(workflow: Path) -> None:
    program = shutil.which("actionlint") or pytest.skip(
        "actionlint is not installed: go install github.com/rhysd/actionlint/cmd/actionlint@latest"
    )
    done = subprocess.run([program, "-no-color", str(workflow)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@each
def test_actions_are_pinned_to_a_commit_whose_version_is_named(workflow: Path) -> None:
    uses = re.findall(r"uses: (.*)", workflow.read_text(encoding="utf-8"))
    assert uses
    for line in uses:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)


def test_an_action_has_one_version() -> None:
    lines = {
        line for path in WORKFLOWS for line in re.findall(r"uses: (.*)", path.read_text(encoding="utf-8"))
    }
    assert len({line.partition("@")[0] for line in lines}) == len(lines)


@each
def test_jobs_have_a_timeout_and_workflows_few_rights(workflow: Path) -> None:
    content = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert content["permissions"] == {"contents": "read"}
    assert content["concurrency"]
    assert [name for name, job in content["jobs"].items() if "timeout-minutes" not in job] == []


@pytest.mark.parametrize("name", ["checks", "nightly"])
def test_targets_of_make_exist(name: str) -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    workflow = REPOSITORY / ".github" / "workflows" / f"{name}.yaml"
    targets = re.findall(r"\{target: ([\w-]+)", workflow.read_text(encoding="utf-8"))
    assert "test-newest" in targets
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []
