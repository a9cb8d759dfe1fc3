"""Takes over what an earlier job kept: the runs of input splits that are the same, and the hashes of their inputs."""

from __future__ import annotations

from tokenfree.preprocess.common.storage import Storage
from tokenfree.preprocess.job.hash_step import hash_sidecar
from tokenfree.preprocess.job.preprocess_job import HASHES, RUNS, PreprocessJob
from tokenfree.preprocess.job.reuse.links import link
from tokenfree.preprocess.shards.sorted_runs import is_whole, load_run, runs_name, split_of_run


def seed(job: PreprocessJob, url: str) -> None:
    """Put the kept runs and hashes of the finished directory `url` where the job will find them; both are on a disk, or
    in one store.

    Files are linked where the file system can, and a store copies them by itself. Whether a run is of use, its
    fingerprint tells as for any run; one whose documents are damaged is left out.

    Raises:
        UserError: the output directory cannot be written to.
    """
    old, new = Storage(url), job.storage
    wanted = {runs_name(line) for line in job.split_lines()}
    there = {f"{folder}/{name}" for folder in (RUNS, HASHES) for name in new.names(folder)}
    runs = {name.partition(".")[0] for name in old.names(RUNS)}
    found = [load_run(old, RUNS, run) for run in runs if split_of_run(run) in wanted]
    good = {run.name for run in found if run is not None and is_whole(old, RUNS, run)}
    kept = [f"{RUNS}/{name}" for name in old.names(RUNS) if name.partition(".")[0] in good]
    kept += [name for line in job.input_lines() if old.size(name := hash_sidecar(line)) is not None]
    # a sidecar comes last, as it says that the others are there
    for name in sorted(kept, key=lambda name: (name.endswith(".json"), name)):
        if name not in there:
            link(old, name, new, name)
