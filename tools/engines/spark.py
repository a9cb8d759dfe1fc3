"""A standalone Spark cluster on this machine: a master, workers, and a pool of Beam workers for each."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.engines.processes import (
    POOL,
    SECONDS_TO_START,
    EngineProcess,
    free_ports,
    pool_host,
    worker_pool,
)

_OPENED = (
    "lang",
    "lang.invoke",
    "lang.reflect",
    "io",
    "net",
    "nio",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_JAVA = (
    "-XX:+UseSerialGC",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
)


class SparkCluster:
    """A Spark cluster of local processes.

    `processes` has the keys `master`, `worker-1` ... and `pool-1` ..., one pool per worker.
    """

    def __init__(self, spark: Path, job_server: Path, folder: Path, workers: int, cores: int) -> None:
        self.job_server, self.folder, self.spark, self.cores = job_server, folder, spark, cores
        self.port, self.web, self.pool_port = free_ports(3)
        self.processes: dict[str, EngineProcess] = {}
        self.numbers = range(1, workers + 1)

    def start(self) -> None:
        """Start all processes and wait until the workers have registered."""
        where = ["--host", "localhost", "--port", str(self.port), "--webui-port", str(self.web)]
        self._java("master", "org.apache.spark.deploy.master.Master", *where)
        self.processes["master"].await_port(self.web)
        for number in self.numbers:
            self.start_worker(number)
            self.start_pool(number)
        self.await_workers(len(self.numbers))

    def start_worker(self, number: int) -> None:
        """Start the worker with this number."""
        rooms = ["--cores", str(self.cores), "--memory", "640m", "--work-dir", str(self.folder / "work")]
        where = ["--host", "localhost", "--webui-port", "0", f"spark://localhost:{self.port}"]
        self._java(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *rooms,
            *where,
            environment=pool_host(number, self.folder),  # inherited by its executors
        )

    def start_pool(self, number: int) -> None:
        """Start the worker pool with this number."""
        self.processes[f"pool-{number}"] = worker_pool(number, self.pool_port, self.folder)

    def await_workers(self, number: int) -> None:
        """Wait until the master reports this number of workers."""
        began = time.monotonic()
        while self.ask()["aliveworkers"] != number:
            if time.monotonic() - began > SECONDS_TO_START:
                raise RuntimeError(f"there are no {number} workers; see {self.folder}")
            time.sleep(0.2)

    def ask(self) -> dict:
        """Return what the master reports about its cluster."""
        with urllib.request.urlopen(f"http://localhost:{self.web}/json/", timeout=10) as answer:
            return json.load(answer)

    def lose(self, number: int) -> None:
        """Kill the worker with this number, its executor and its worker pool, including their child processes."""
        self.processes[f"worker-{number}"].signal()
        self.processes[f"pool-{number}"].signal()

    def replace(self, number: int) -> None:
        """Start the worker with this number and its worker pool again."""
        self.start_worker(number)
        self.start_pool(number)

    def stop(self) -> None:
        """Kill all processes."""
        for process in self.processes.values():
            process.signal()

    def options(self) -> list[str]:
        """Return the options of `tokenfree preprocess` for jobs on this cluster, with a small driver."""
        conf = {
            "spark.executor.memory": "480m",
            # An executor looks in Spark's jars first. Their Guava is too old for Beam, so the first task of
            # each executor would fail.
            "spark.executor.extraClassPath": str(self.job_server),
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "localhost",
            "spark.ui.enabled": "false",
        }
        java = ["-Xmx512m", *_JAVA, *(f"-D{name}={value}" for name, value in conf.items())]
        return [
            *("--runner", "spark", "--"),
            f"--spark_master_url=spark://localhost:{self.port}",
            f"--spark_job_server_jar={self.job_server}",
            f"--files_to_stage={self.job_server}",
            f"--environment_config={POOL}:{self.pool_port}",
            *(f"--job_server_jvm_properties={option}" for option in java),
        ]

    def _java(
        self, name: str, entry: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        command = ["java", "-Xmx256m", *_JAVA, "-cp", f"{self.spark}/jars/*", entry, *arguments]
        local = {
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_HOME": str(self.spark),
            "SPARK_SCALA_VERSION": "2.12",  # as Spark's scripts set it; needed to start executors
        }
        self.processes[name] = EngineProcess(name, command, self.folder, {**local, **(environment or {})})


@contextlib.contextmanager
def spark_cluster(
    spark: Path, job_server: Path, folder: Path, workers: int = 2, cores: int = 1
) -> Iterator[SparkCluster]:
    """Run a cluster in the block. `spark` is the folder that contains jars/."""
    cluster = SparkCluster(spark, job_server, folder, workers, cores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
