"""A pool of Beam workers next to a task manager of Flink or an executor of Spark.

It starts a process for each worker that the engine requests, in the pool's own environment:

    python -m tokenfree.pipelines.worker_pool --port 50000

Beam's own pool (`apache_beam.runners.worker.worker_pool_main`) does the same, but listens on all addresses of
the machine. Anyone who reaches a pool can run code in it. Each task manager and each executor needs its own
pool: their workers have the same numbers, so one would end the workers of another in a shared pool.
"""

import argparse
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import (
    BeamFnExternalWorkerPoolServicer,
    kill_process_gracefully,
)

LOOPBACK = "127.0.0.1"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--address", default=LOOPBACK, help=f"to listen on (default {LOOPBACK})")
    options = parser.parse_args()
    # `python` on the PATH, which the pool starts, is this interpreter with our packages.
    root = str(Path(__file__).resolve().parents[2])
    for name, first in (("PATH", str(Path(sys.executable).parent)), ("PYTHONPATH", root)):
        os.environ[name] = os.pathsep.join(filter(None, (first, os.environ.get(name))))
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    pings = [
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.so_reuseport", 0),
    ]
    # Calls at a time; each only starts or ends a process.
    server = grpc.server(ThreadPoolExecutor(16), options=pings)
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    try:
        server.add_insecure_port(f"{options.address}:{options.port}")
    except RuntimeError:
        sys.exit(f"{options.address}:{options.port}: cannot be listened on; is another pool there?")
    server.start()
    print(f"listening on {options.address}:{options.port}", flush=True)
    ended.wait()
    server.stop(0)
    for process in list(pool._worker_processes.values()):
        kill_process_gracefully(process)


if __name__ == "__main__":
    main()
