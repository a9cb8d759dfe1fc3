"""Fetch engines of Beam into the cache: Prism, and Flink and Spark with their job servers.

    python -m tools.engines.fetch                # all that are missing
    python -m tools.engines.fetch flink

Prism needs Go. Job servers need Maven and Java. The engines are stored in `engines/` of the cache
(TOKENFREE_CACHE, by default ~/.cache/tokenfree). Downloads are checked against the hashes in
infra/beam/job-servers by pip, by Go's module download and by this program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tokenfree.core.files import cache_folder, hash_file
from tools import REPOSITORY

SUMS = REPOSITORY / "infra" / "beam" / "job-servers"
PRISM, PRISM_VERSION = "github.com/apache/beam/sdks/v2", "v2.77.0"
PRISM_SUM = "h1:RsC61pHEvtySEHAURQyP/+CVOJm/hy5hewuG9JF0+Ow="
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
NEWER = {"guava"}  # Spark's own version is too old for Beam
# Files that apply to a single jar. With an index, Java would ignore the class path.
_OF_ONE_JAR = re.compile(
    r"META-INF/.*\.(SF|RSA|DSA)|.*module-info\.class|META-INF/(MANIFEST\.MF|INDEX\.LIST)"
)


def home() -> Path:
    """Return the folder of the engines."""
    return cache_folder() / "engines"


def prism() -> Path:
    """Return the path of the program."""
    return home() / "prism"


def flink() -> Path:
    """Return the folder of Flink, which contains lib/."""
    return home() / "flink"


def spark() -> Path:
    """Return the folder of Spark, which contains jars/."""
    return home() / "spark"


def job_server(engine: str) -> Path:
    """Return the job server of Flink or Spark, for --flink_job_server_jar or --spark_job_server_jar."""
    return home() / f"{engine}-job-server.jar"


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "engines", nargs="*", metavar="ENGINE", default=list(FETCHERS), help="prism, flink, spark"
    )
    home().mkdir(parents=True, exist_ok=True)
    for engine in options.parse_args().engines:
        if engine not in FETCHERS:
            sys.exit(f"there is no {engine!r}; give of {', '.join(FETCHERS)}")
        FETCHERS[engine]()
        print(f"{engine}: in {home()}")


def fetch_prism() -> None:
    """Build Prism with Go.

    Go checks the modules against its database of hashes; Prism's own hash is in this file.
    """
    if prism().exists():
        return
    told = _run(["go", "mod", "download", "-json", f"{PRISM}@{PRISM_VERSION}"])
    if json.loads(told)["Sum"] != PRISM_SUM:
        sys.exit(f"prism: {PRISM}@{PRISM_VERSION} is another one than was tried")
    new = home() / "prism.new"
    _run(["go", "install", f"{PRISM}/go/cmd/prism@{PRISM_VERSION}"], GOBIN=str(new))
    (new / "prism").rename(prism())
    new.rmdir()


def fetch_flink() -> None:
    """Extract Flink from its Python package, and make Beam's job server."""
    _unpack("apache-flink-libraries", "deps", flink())
    _make_job_server("flink", "org.apache.beam.runners.flink.FlinkJobServerDriver")


def fetch_spark() -> None:
    """Extract Spark from its Python package, and make Beam's job server, which is a driver of that Spark."""
    _unpack("pyspark", "deps", spark())
    _make_job_server("spark", "org.apache.beam.runners.spark.SparkJobServerDriver", spark() / "jars")


FETCHERS: dict[str, Callable[[], None]] = {"prism": fetch_prism, "flink": fetch_flink, "spark": fetch_spark}


def _unpack(package: str, inner: str, target: Path) -> None:
    """Extract the folder `inner` of a source package."""
    if target.exists():
        return
    fetched = home() / f"{package}.new"
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir()
    line = next(
        line for line in (SUMS / "engines.txt").read_text().splitlines() if line.startswith(f"{package}==")
    )
    (fetched / "wanted.txt").write_text(line)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        ":all:",
        "--require-hashes",
    ]
    _run([*pip, "-r", str(fetched / "wanted.txt"), "-d", str(fetched)])
    (archive,) = fetched.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(fetched, filter="data")
    (found,) = fetched.glob(f"*/{inner}")
    found.rename(target)
    shutil.rmtree(fetched)


def _make_job_server(engine: str, main_class: str, beside: Path | None = None) -> None:
    """Make a job server: one jar with everything that it needs, like Beam's own job server."""
    if job_server(engine).exists():
        return
    jars = home() / f"{engine}-jars"
    shutil.rmtree(jars, ignore_errors=True)
    project = SUMS / f"{engine}.xml"
    _run(["mvn", "--quiet", "--batch-mode", "--file", str(project), COPY, f"-DoutputDirectory={jars}"])
    lines = [line.split() for line in (SUMS / f"{engine}.sha256").read_text().splitlines()]
    wanted = {name: sha256 for sha256, name in lines}
    found = {path.name: hash_file(str(path)) for path in jars.glob("*.jar")}
    odd = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if odd:
        sys.exit(f"{engine}: {', '.join(odd)}: not what {SUMS / engine}.sha256 says")
    there = {_artifact(path): path for path in beside.glob("*.jar")} if beside else {}
    merge(
        [path for path in sorted(jars.glob("*.jar")) if _artifact(path) not in there.keys() - NEWER],
        main_class,
        job_server(engine),
        there.values(),
    )
    shutil.rmtree(jars)


def merge(jars: Iterable[Path], main_class: str, target: Path, beside: Iterable[Path] = ()) -> None:
    """Merge jars into one.

    Of files with the same name, the first one is kept; lists of services are concatenated. The class path of
    the merged jar refers to the jars `beside` it.
    """
    paths = [os.path.relpath(path, target.parent) for path in sorted(beside)]
    joined: dict[str, list[str]] = {}
    seen: set[str] = set()
    new = target.with_suffix(".new")
    with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as merged:
        merged.writestr("META-INF/MANIFEST.MF", _manifest(main_class, paths))
        for jar in jars:
            with zipfile.ZipFile(jar) as source:
                for name in source.namelist():
                    if name.startswith("META-INF/services/") or name == "reference.conf":
                        joined.setdefault(name, []).append(source.read(name).decode())
                    elif name not in seen and not name.endswith("/") and not _OF_ONE_JAR.fullmatch(name):
                        seen.add(name)
                        merged.writestr(name, source.read(name))
        for name, texts in joined.items():
            merged.writestr(name, "\n".join(texts))
    os.replace(new, target)


def _manifest(main_class: str, class_path: list[str]) -> str:
    lines = ["Manifest-Version: 1.0", f"Main-Class: {main_class}", "Multi-Release: true"]
    if class_path:
        lines.append(f"Class-Path: {' '.join(class_path)}")
    # A line has at most 72 bytes. A line that begins with a space continues the previous one.
    return "".join("\r\n ".join(re.findall(".{1,70}", line)) + "\r\n" for line in lines) + "\r\n"


def _artifact(jar: Path) -> str:
    return re.sub(r"-\d[^-]*(-.*)?\.jar$", "", jar.name)


def _run(command: list[str], **environment: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    except FileNotFoundError:
        sys.exit(f"{command[0]}: not found; install it first")
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
