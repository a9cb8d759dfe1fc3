"""The job servers that are put together from parts."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tools.engines.fetch import SUMS, merge


def write_jar(path: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as jar:
        for name, text in files.items():
            jar.writestr(name, text)
    return path


def test_jars_become_one_whose_services_are_joined(tmp_path: Path) -> None:
    own = {
        "META-INF/MANIFEST.MF": "x",
        "META-INF/INDEX.LIST": "x",
        "META-INF/A.SF": "x",
        "module-info.class": "x",
    }
    first = write_jar(tmp_path / "a-1.jar", {**own, "a.txt": "first", "META-INF/services/s": "one"})
    second = write_jar(
        tmp_path / "b-1.jar", {**own, "a.txt": "second", "b.txt": "b", "META-INF/services/s": "two"}
    )
    beside = [tmp_path / "engine" / f"a-jar-with-quite-a-long-name-{number}.jar" for number in range(9)]
    merge([first, second], "org.example.Main", tmp_path / "out.jar", beside)
    with zipfile.ZipFile(tmp_path / "out.jar") as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
        assert sorted(jar.namelist()) == ["META-INF/MANIFEST.MF", "META-INF/services/s", "a.txt", "b.txt"]
        assert jar.read("a.txt") == b"first"
        assert jar.read("META-INF/services/s") == b"one\ntwo"
    assert max(len(line) for line in manifest.split("\r\n")) <= 72
    lines = manifest.replace("\r\n ", "").split("\r\n")
    assert "Main-Class: org.example.Main" in lines
    assert f"Class-Path: {' '.join(f'engine/{path.name}' for path in beside)}" in lines


@pytest.mark.skipif(shutil.which("javac") is None, reason="needs a JDK")
def test_java_finds_what_lies_beside(tmp_path: Path) -> None:
    (tmp_path / "Main.java").write_text(
        "public class Main { public static void main(String[] a) { Beside.run(); } }"
    )
    (tmp_path / "Beside.java").write_text('class Beside { static void run() { System.out.print("found"); } }')
    subprocess.run(["javac", "Main.java", "Beside.java"], cwd=tmp_path, check=True)
    for name, extra in (
        ("Main", {"META-INF/INDEX.LIST": "JarIndex-Version: 1.0\n\nMain-1.jar\nx\n"}),
        ("Beside", {}),
    ):
        with zipfile.ZipFile(tmp_path / f"{name}-1.jar", "w") as jar:
            jar.write(tmp_path / f"{name}.class", f"{name}.class")
            for inner, text in extra.items():
                jar.writestr(inner, text)
    merge([tmp_path / "Main-1.jar"], "Main", tmp_path / "out.jar", [tmp_path / "Beside-1.jar"])
    done = subprocess.run(
        ["java", "-jar", str(tmp_path / "out.jar")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "found"


def test_all_that_is_fetched_has_a_sum() -> None:
    for engine in ("flink", "spark"):
        lines = (SUMS / f"{engine}.sha256").read_text().splitlines()
        assert len(lines) > 100
        assert all(len(line.split()[0]) == 64 and line.endswith(".jar") for line in lines)
    packages = [line for line in (SUMS / "engines.txt").read_text().splitlines() if not line.startswith("#")]
    assert all("==" in line and "--hash=sha256:" in line for line in packages)
