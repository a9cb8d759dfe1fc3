"""The files of incidents, with what training left out and where it went back to; see train/loop/loss_spikes.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenfree.preprocess.common.local_files import write_atomically
from tokenfree.preprocess.common.storage import Storage
from tokenfree.train.loop.loss_spikes import Incident
from tokenfree.train.runs.run_files import INCIDENT


def save_incident(
    run: Path, incident: Incident, *, left_out: Iterable[int] = (), checkpoint: int | None = None
) -> Path:
    """Write the file of an incident into the folder `run`; returns its path.

    Args:
        left_out: the batches that are not to be used again.
        checkpoint: the step that training goes back to, None where it does not.
    """
    folder = run / "incidents"
    folder.mkdir(exist_ok=True)
    path = folder / f"batch_{incident.batch:08d}.json"
    record = {
        "kind": incident.kind,
        "step": incident.step,
        "batch": incident.batch,
        "loss": incident.loss if math.isfinite(incident.loss) else None,
        "sample_ids": incident.sample_ids,
        "checkpoint": checkpoint,
        "left_out": sorted(left_out),
    }
    write_atomically(path, json.dumps(record) + "\n")
    return path


def roll_backs(run: Path) -> list[dict[str, Any]]:
    """The records of the incidents after which training went back, in the order of their batches.

    Raises:
        UserError: a file is damaged.
    """
    paths = sorted((run / "incidents").glob("batch_*.json"))
    storage = Storage.at(str(run / "incidents"))
    records = [INCIDENT.json(storage, path.name) for path in paths]
    return [record for record in records if record["checkpoint"] is not None]


def batches_to_leave_out(batch: int, first: int, checkpoint: int, before: list[dict[str, Any]]) -> list[int]:
    """The batches from now on left out for an incident in `batch`, when training goes back to step `checkpoint`.

    `first` is the batch of the first step after that checkpoint; `before` are the records of earlier incidents.
    """
    again = any(record["checkpoint"] == checkpoint for record in before)
    return list(range(first if again else batch, batch + 1))
