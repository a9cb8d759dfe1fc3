"""A Flink session cluster on this machine: a job manager, task managers, and a pool of Beam workers for each."""

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

_OPENED = ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util", "util.concurrent")
_JAVA = (
    "-XX:+UseSerialGC",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED),
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.locks=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_LOGGING = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = Console
appender.console.name = Console
appender.console.type = CONSOLE
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss,SSS} %-5p %c{1} - %m%n
"""
# Flink derives no memory sizes when started without its scripts; a small dump needs little. The short
# heartbeat detects lost task managers soon.
_CONFIG = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.bind-host": "localhost",
    "rest.address": "localhost",
    "rest.bind-address": "localhost",
    "taskmanager.host": "localhost",
    "taskmanager.bind-host": "localhost",
    "taskmanager.cpu.cores": 2,
    "taskmanager.memory.framework.heap.size": "96m",
    "taskmanager.memory.framework.off-heap.size": "64m",
    "taskmanager.memory.task.heap.size": "192m",
    "taskmanager.memory.task.off-heap.size": "32m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.managed.size": "96m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "128m",
    "taskmanager.memory.jvm-overhead.max": "128m",
    "taskmanager.network.sort-shuffle.min-buffers": 64,
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": 20,
    "restart-strategy.fixed-delay.delay": "1 s",
    "heartbeat.interval": 1000,
    "heartbeat.timeout": 15000,
}


class FlinkCluster:
    """A Flink cluster of local processes.

    `processes` has the keys `jobmanager`, `taskmanager-1` ... and `pool-1` ..., one pool per task manager.
    """

    def __init__(self, flink: Path, job_server: Path, folder: Path, task_managers: int, slots: int) -> None:
        self.job_server, self.folder, self.flink = job_server, folder, flink
        rpc, self.rest, self.pool_port = free_ports(3)
        values = {**_CONFIG, "jobmanager.rpc.port": rpc, "rest.port": self.rest, "io.tmp.dirs": str(folder)}
        self.slots = values["taskmanager.numberOfTaskSlots"] = slots
        (folder / "config.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        (folder / "log4j.properties").write_text(_LOGGING)
        self.processes: dict[str, EngineProcess] = {}
        self.numbers = range(1, task_managers + 1)

    def start(self) -> None:
        """Start all processes and wait until the task managers have registered."""
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._java("jobmanager", "-Xmx320m", entry, "--executionMode", "cluster")
        self.processes["jobmanager"].await_port(self.rest)
        for number in self.numbers:
            self.start_task_manager(number)
            self.start_pool(number)
        self.await_task_managers(len(self.numbers))

    def start_task_manager(self, number: int) -> None:
        """Start the task manager with this number."""
        entry = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
        self._java(f"taskmanager-{number}", "-Xmx288m", entry, environment=pool_host(number, self.folder))

    def start_pool(self, number: int) -> None:
        """Start the worker pool with this number."""
        self.processes[f"pool-{number}"] = worker_pool(number, self.pool_port, self.folder)

    def await_task_managers(self, number: int) -> None:
        """Wait until the job manager reports this number of task managers."""
        began = time.monotonic()
        while self.ask("overview")["taskmanagers"] != number:
            if time.monotonic() - began > SECONDS_TO_START:
                raise RuntimeError(f"there are no {number} task managers; see {self.folder}")
            time.sleep(0.2)

    def ask(self, path: str) -> dict:
        """Return the answer of the job manager's REST interface."""
        with urllib.request.urlopen(f"http://localhost:{self.rest}/{path}", timeout=10) as answer:
            return json.load(answer)

    def lose(self, number: int) -> None:
        """Kill the task manager with this number and its worker pool, including their child processes."""
        self.processes[f"taskmanager-{number}"].signal()
        self.processes[f"pool-{number}"].signal()

    def replace(self, number: int) -> None:
        """Start the task manager with this number and its worker pool again."""
        self.start_task_manager(number)
        self.start_pool(number)

    def stop(self) -> None:
        """Kill all processes."""
        for process in self.processes.values():
            process.signal()

    def options(self) -> list[str]:
        """Return the options of `tokenfree preprocess` for jobs on this cluster."""
        tasks = len(self.numbers) * self.slots
        return [
            *("--runner", "flink", "--workers", str(tasks), "--"),
            f"--flink_master=localhost:{self.rest}",
            f"--flink_job_server_jar={self.job_server}",
            "--job_server_jvm_properties=-Xmx512m",
            f"--environment_config={POOL}:{self.pool_port}",
        ]

    def _java(
        self,
        name: str,
        memory: str,
        entry: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        logging = f"-Dlog4j.configurationFile=file:{self.folder}/log4j.properties"
        command = [
            "java",
            memory,
            *_JAVA,
            logging,
            "-cp",
            f"{self.flink}/lib/*",
            entry,
            "-c",
            str(self.folder),
        ]
        self.processes[name] = EngineProcess(name, [*command, *arguments], self.folder, environment)


@contextlib.contextmanager
def flink_cluster(
    flink: Path, job_server: Path, folder: Path, task_managers: int = 2, slots: int = 1
) -> Iterator[FlinkCluster]:
    """Run a cluster in the block. `flink` is the folder that contains lib/."""
    cluster = FlinkCluster(flink, job_server, folder, task_managers, slots)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
