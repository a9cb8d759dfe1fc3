"""A standalone Spark cluster on this machine: a master and workers, with pools of Beam workers beside them."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.engines.processes import POOL, SECONDS_TO_START, EngineProcess, free_ports, pool_host, worker_pool

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
    """Processes of a cluster by name: `master`, `worker-1` ..., `pool-1` ...; the same number of each of the latter."""

    def __init__(self, spark: Path, job_server: Path, folder: Path, workers: int, cores: int) -> None:
        self.job_server, self.folder, self.spark, self.cores = job_server, folder, spark, cores
        self.port, self.web, self.pool_port = free_ports(3)
        self.processes: dict[str, EngineProcess] = {}
        self.numbers = range(1, workers + 1)

    def start(self) -> None:
        """Start all and wait until the workers have reported."""
        where = ["--host", "localhost", "--port", str(self.port), "--webui-port", str(self.web)]
        self._java("master", "org.apache.spark.deploy.master.Master", *where)
        self.processes["master"].await_port(self.web)
        for number in self.numbers:
            self.start_worker(number)
            self.start_pool(number)
        self.await_workers(len(self.numbers))

    def start_worker(self, number: int) -> None:
        """Start it."""
        rooms = ["--cores", str(self.cores), "--memory", "640m", "--work-dir", str(self.folder / "work")]
        where = ["--host", "localhost", "--webui-port", "0", f"spark://localhost:{self.port}"]
        self._java(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *rooms,
            *where,
            environment=pool_host(number, self.folder),  # its executors inherit it
        )

    def start_pool(self, number: int) -> None:
        """Start the pool of that number."""
        self.processes[f"pool-{number}"] = worker_pool(number, self.pool_port, self.folder)

    def await_workers(self, number: int) -> None:
        """Wait until the master knows this number of them."""
        began = time.monotonic()
        while self.ask()["aliveworkers"] != number:
            if time.monotonic() - began > SECONDS_TO_START:
                raise RuntimeError(f"there are no {number} workers; see {self.folder}")
            time.sleep(0.2)

    def ask(self) -> dict:
        """What the master says of its cluster."""
        with urllib.request.urlopen(f"http://localhost:{self.web}/json/", timeout=10) as answer:
            return json.load(answer)

    def lose(self, number: int) -> None:
        """Kill the worker with its executor of that number, and the pool beside it with its processes."""
        self.processes[f"worker-{number}"].signal()
        self.processes[f"pool-{number}"].signal()

    def replace(self, number: int) -> None:
        """Start them again."""
        self.start_worker(number)
        self.start_pool(number)

    def stop(self) -> None:
        """Kill what runs."""
        for process in self.processes.values():
            process.signal()

    def options(self) -> list[str]:
        """Options of `tokenfree preprocess` for jobs on this cluster; the driver is small."""
        conf = {
            "spark.executor.memory": "480m",
            # Its jars come first on an executor, and its Guava is too old for Beam: the first task of each would fail.
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

    def _java(self, name: str, entry: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        command = ["java", "-Xmx256m", *_JAVA, "-cp", f"{self.spark}/jars/*", entry, *arguments]
        local = {
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_LOCAL_HOSTNAME": "localhost",
            "SPARK_HOME": str(self.spark),
            "SPARK_SCALA_VERSION": "2.12",  # as Spark's scripts set it: without it a worker cannot start executors
        }
        self.processes[name] = EngineProcess(name, command, self.folder, {**local, **(environment or {})})


@contextlib.contextmanager
def spark_cluster(
    spark: Path, job_server: Path, folder: Path, workers: int = 2, cores: int = 1
) -> Iterator[SparkCluster]:
    """A running cluster; `spark` is the folder with jars/."""
    cluster = SparkCluster(spark, job_server, folder, workers, cores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
