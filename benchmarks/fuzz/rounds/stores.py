"""Data directories and runs in an S3 store that drops, delays and refuses requests."""

from __future__ import annotations

import atexit
import functools
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from benchmarks.fuzz.commands import ROOT, Outcome
from benchmarks.fuzz.faults import Fault
from benchmarks.fuzz.judges import expect, judge_losses, judge_shards
from benchmarks.fuzz.originals import BOOKS, DUMPS, PREPROCESS
from benchmarks.fuzz.rounds.context import Round
from benchmarks.fuzz.store import KINDS

ATTEMPTS = 3  # of a command that ends because requests failed
STORE_LIMIT = 240.0


def preprocess(round_: Round) -> None:
    """Preprocessing into a store that fails: given again where it gives up, it ends with the same bytes."""
    round_.take(round_.originals.inputs)
    store = Store(round_)
    command = ("preprocess", *BOOKS, *DUMPS, "--output", f"{store.bucket}/data", *PREPROCESS)
    _until_done(round_, store, command, round_.originals.seconds("data"))
    store.fetch("data")
    judge_shards(round_.folder / "data", round_.originals.shards)


def pretrain(round_: Round) -> None:
    """Pretraining from and into such a store: the same losses."""
    store = Store(round_)
    store.put(round_.originals.data)
    recipe = round_.recipe()
    round_.take(round_.originals.inputs / f"{recipe}.yaml")
    command = ("pretrain", f"{recipe}.yaml", "--data", f"{store.bucket}/data", "--output", f"{store.bucket}/run")
    _until_done(round_, store, command, round_.originals.seconds(f"run-{recipe}"))
    store.fetch("run")
    judge_losses(round_.folder / "run", *round_.originals.losses(recipe))


class Store:
    """A bucket of the round's own."""

    def __init__(self, round_: Round) -> None:
        self._round = round_
        self.endpoint = _server()
        self.environment = {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }  # fmt: skip
        name = f"round-{round_.seed}-{time.time_ns()}"
        self.bucket = f"s3://{name}"
        self.order(0.0)
        self._script("fs.mkdir(sys.argv[1])", name)

    def order(self, share: float) -> None:
        """Let this share of the requests fail from now on."""
        kinds = self._round.draw.sample(KINDS, self._round.draw.randint(1, len(KINDS)))
        body = json.dumps({"seed": self._round.draw.randrange(10**9), "share": share, "kinds": kinds}).encode()
        request = urllib.request.Request(f"{self.endpoint}/-/faults", data=body, method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        self._round.story.append(f"{share:.0%} of the requests fail: {', '.join(kinds)}")

    def put(self, folder: Path) -> None:
        """Copy a folder into the bucket."""
        self._script("fs.put(sys.argv[1], sys.argv[2], recursive=True)", str(folder), f"{self.bucket}/")

    def fetch(self, name: str) -> None:
        """Copy a folder of the bucket into that of the round; no request fails meanwhile."""
        self.order(0.0)
        code = "fs.get(sys.argv[1], sys.argv[2], recursive=True)"
        self._script(code, f"{self.bucket}/{name}", f"{self._round.folder}/")

    def _script(self, code: str, *arguments: str) -> None:
        """Use the store in another process: what forks are made of must have no threads."""
        program = (
            f"import sys, s3fs; fs = s3fs.S3FileSystem(endpoint_url='{self.endpoint}', key='key', secret='secret'); "
        )
        subprocess.run([sys.executable, "-c", program + code, *arguments], check=True, timeout=120)


def _until_done(round_: Round, store: Store, command: tuple[str, ...], seconds: float) -> Outcome:
    """The command, with requests that fail and sometimes a kill; given again while it says that it failed."""
    store.order(round_.draw.choice((0.02, 0.1, 0.25)))
    if round_.draw.random() < 0.5:
        fault = Fault(seconds=round_.draw.uniform(0.0, 2 * seconds))
        round_.command(*command, fault=fault, environment=store.environment, limit=STORE_LIMIT)
    for _ in range(ATTEMPTS):
        outcome = round_.command(*command, environment=store.environment, limit=STORE_LIMIT)
        if outcome.status == 0:
            return outcome
    store.order(0.0)
    outcome = round_.command(*command, environment=store.environment, limit=STORE_LIMIT)
    expect(outcome.status == 0, "does not end when the store is well again")
    return outcome


@functools.cache
def _server() -> str:
    """The address of a server that lives as long as this process."""
    port = Path(f"/tmp/tokenfree-fuzz-store-{time.time_ns()}")
    command = [sys.executable, "-m", "benchmarks.fuzz.store", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    atexit.register(process.kill)
    stop = time.monotonic() + 60
    while not port.exists():
        if process.poll() is not None or time.monotonic() > stop:
            raise RuntimeError("the S3 server does not start; install the extra `dev`")
        time.sleep(0.05)
    address = f"http://127.0.0.1:{port.read_text(encoding='utf-8')}"
    port.unlink()
    return address
