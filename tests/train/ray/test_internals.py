"""The seam: what is used of Ray without a documented door is still there, and nothing else of its inside is imported.

Where one of these fails with another version of Ray, see what the message says before the pin of `ray` in
pyproject.toml is moved.
"""

import ast
import asyncio
import importlib
import inspect
from pathlib import Path

import pytest
import ray
from ray._private import ray_constants, services
from ray.data._internal.cluster_autoscaler.default_autoscaling_coordinator import _AutoscalingCoordinatorActor
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.execution import callback
from ray.train.v2._internal.execution.controller.controller import TrainController
from ray.train.v2._internal.execution.controller.placement_group_cleaner import PlacementGroupCleaner
from ray.train.v2._internal.execution.scaling_policy import ScalingPolicy
from ray.train.v2._internal.execution.scaling_policy.scaling_policy import ResizeDecision
from ray.train.v2._internal.execution.worker_group import RayTrainWorker, WorkerGroup, WorkerGroupPollStatus
from ray.train.v2._internal.state.util import is_actor_alive
from ray.util.state.exception import RayStateApiException

from tests.conftest import SOURCE
from tokenfree.core.errors import JobError
from tokenfree.train.ray import cluster, internals
from tokenfree.train.ray.callbacks import GroupCallback, NodeCallback, ResizeCallback
from tokenfree.train.ray.cluster import SETTINGS
from tokenfree.train.ray.worker_errors import LossCallback

SEAM = "train/ray/internals.py"  # its `check` covers the other two
ACCESS = "core/ray_access.py"  # has its own tests
NODE = "train/ray/loopback_node.py"  # a process of its own, which imports nothing else
CALLBACKS = (GroupCallback, LossCallback, NodeCallback, ResizeCallback)


def inner_imports(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    modules += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = [module.split(".") for module in modules]
    return [
        ".".join(names)
        for names in parts
        if names[0] == "ray" and any(name.startswith("_") for name in names)
    ]


def test_only_one_file_and_the_process_of_a_node_look_inside_ray() -> None:
    files = [
        path
        for folder in ("core", "train", "workflows", "pipelines")
        for path in (SOURCE / folder).rglob("*.py")
    ]
    found = {
        path.relative_to(SOURCE).as_posix(): modules for path in files if (modules := inner_imports(path))
    }
    assert set(found) == {SEAM, NODE, ACCESS}, "use Ray's documented doors, or go through internals.py"
    assert len(found[SEAM]) == 5, "add what you use to PARTS"
    assert found[NODE] == ["ray._private"]
    assert found[ACCESS] == ["ray._raylet"]


def test_callbacks_are_called_by_the_names_that_they_have() -> None:
    for ours in CALLBACKS:
        for name, method in vars(ours).items():
            if name.startswith("_"):
                continue
            theirs = next((getattr(base, name) for base in ours.__mro__[1:] if hasattr(base, name)), None)
            assert theirs is not None, f"Ray has no callback {name} any more; see {callback.__file__}"
            given, wished = (list(inspect.signature(each).parameters) for each in (method, theirs))
            assert given == wished, f"Ray calls {name} with other arguments; see {callback.__file__}"
            assert asyncio.iscoroutinefunction(method) == asyncio.iscoroutinefunction(theirs), name
    resize = inspect.getsource(TrainController._execute_resize_decision)
    at = resize.index("before_controller_execute_resize_decision")
    assert "decision.num_workers" in resize[at:], (
        "the number that ResizeCallback changes is not read after it"
    )
    assert ResizeDecision(1, {}).num_workers == 1
    for name in ("get_workers", "get_latest_poll_status", "poll_status", "execute", "execute_single"):
        assert hasattr(WorkerGroup, name), f"ResizeCallback or TorchGroup calls WorkerGroup.{name}"
    for name in ("errors", "finished", "get_preemption_info"):
        assert hasattr(WorkerGroupPollStatus, name), f"callbacks read {name} of the status of workers"
    assert "on_shutdown" in inspect.getsource(BackendSetupCallback), "TorchGroup kills workers there"


def test_check_names_the_version_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    internals.check()
    monkeypatch.delattr(services, "get_node_ip_address")
    monkeypatch.delattr(callback.WorkerGroupCallback, "after_worker_group_start")
    install = "Install a tested one: pip install 'ray[default,train,tune]==2.60.*'"
    with pytest.raises(JobError) as raised:
        internals.check()
    assert "it has no after_worker_group_start, get_node_ip_address." in str(raised.value)
    assert str(raised.value).endswith(install)


def test_check_covers_the_hooks_of_all_callbacks() -> None:
    hooks = {
        name
        for ours in CALLBACKS
        for name in vars(ours)
        if not name.startswith("_") and any(hasattr(base, name) for base in ours.__mro__[1:])
    }
    checked = internals.PARTS[internals.ControllerCallback] + internals.PARTS[internals.WorkerGroupCallback]
    assert hooks == set(checked)


def test_a_moved_part_names_the_version_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("ray._private.state.state")
    with pytest.raises(JobError, match=r"cannot import name 'state'.*Install a tested one: pip install 'ray"):
        importlib.reload(internals)
    monkeypatch.undo()
    importlib.reload(internals)


def test_a_session_checks_ray_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(internals.services, "get_node_ip_address")
    with pytest.raises(JobError, match="it has no get_node_ip_address"), cluster.ray_session():
        pass


def test_workers_need_no_datasets() -> None:
    trainer = TorchTrainer(lambda: None)
    names = [type(callback).__name__ for callback in trainer._create_default_callbacks()]
    assert "DatasetsCallback" in names, "see leave_out_datasets"
    internals.leave_out_datasets(trainer)
    left = [type(callback).__name__ for callback in trainer._create_default_callbacks()]
    assert left == [name for name in names if name != "DatasetsCallback"]
    provider = inspect.signature(RayTrainWorker.init_train_context).parameters["dataset_shard_provider"]
    assert provider.default is None, "workers need what DatasetsCallback gives them"
    assert "self._create_default_callbacks()" in inspect.getsource(TorchTrainer.fit)


def test_reservations_are_asked_for_as_ray_names_them() -> None:
    parameters = inspect.signature(_AutoscalingCoordinatorActor.get_reserved_resources).parameters
    assert list(parameters) == ["self", "requester_id", "recompute"], "see Reservation"
    assert 'f"train-{train_run_context.run_id}"' in inspect.getsource(ScalingPolicy.after_controller_start)


def test_a_new_cluster_gets_the_address_of_this_machine_alone() -> None:
    assert ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR == "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    assert not ray.is_initialized()
    with internals.on_loopback():
        assert services.get_node_ip_address() == "127.0.0.1", "see on_loopback"
    assert ray_constants.ENABLE_RAY_CLUSTER


def test_ray_s_own_cleaner_gives_up_where_there_is_no_state_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", SETTINGS["RAY_API_SERVER_ADDRESS"])
    with pytest.raises(RuntimeError, match="no_state_api") as raised:
        is_actor_alive("ab" * 16, timeout=1)
    assert not isinstance(raised.value, RayStateApiException), "it would warn every second"
    assert "except Exception" not in inspect.getsource(PlacementGroupCleaner._monitor_loop), (
        "it would continue"
    )


def test_draining_nodes_and_messages_have_a_handle() -> None:
    assert callable(internals.state.get_draining_nodes), "see draining_nodes"
    assert hasattr(internals.stdout_deduplicator, "skip_re"), "see muted"
