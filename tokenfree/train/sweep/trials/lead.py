"""The process of a sweep that is connected to Ray; see train/jobs/ray_child.py."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

from ray.exceptions import RayError

from tokenfree.train.ray.child import Link
from tokenfree.train.ray.cluster import TUNE_LOGGERS, RayLost, Session, ray_environment, ray_session, watched
from tokenfree.train.sweep.control.controller import SweepController
from tokenfree.train.sweep.control.placement import cluster_nodes, find_placement
from tokenfree.train.sweep.control.proposals import Plan, Proposer
from tokenfree.train.sweep.control.sweep_files import RAY
from tokenfree.train.sweep.trials.ray_tune import run_segments


def lead(link: Link, plans: bytes, data: Any, folder: str) -> str | None:
    """Train the trials of a sweep; what goes over `link` are the session, pickled, and every event of the journal.

    Args:
        link: to the command.
        plans: what `prepare` returned, pickled.
        data: the parts of what trials train on, see train/sweep/subjects/.
        folder: of the sweep.

    Returns:
        What of Ray was lost before the end, in words, none of them where that cannot be told; None: all is done.

    Raises:
        UserError: the space and the cluster do not fit together.
        JobError: Ray could not be started or reached, or memory ran out again and again.
    """
    link.listen(lambda message: None)  # this process ends with the command
    proposer, planned = pickle.loads(plans)
    with ray_environment(mute=TUNE_LOGGERS):
        try:
            with ray_session() as session:
                link.send(pickle.dumps(session))
                _train(proposer, planned, data, Path(folder), link, session)
        except RayLost as error:
            return str(error)
        except RayError:  # an actor that does not answer
            return ""
    return None


def _train(proposer: Proposer, planned: Plan, data: Any, folder: Path, link: Link, session: Session) -> None:
    placement = find_placement(proposer.sweep, planned.settings, cluster_nodes())
    controller = SweepController(
        proposer, planned, folder, placement.concurrent, lambda event, history: link.send(event)
    )
    try:
        controller.start()
        watched(partial(run_segments, controller, placement, data, folder / RAY), session)
    finally:
        controller.close()
