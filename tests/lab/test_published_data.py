"""`lab data`: published sets are listed with their facts; a downloaded file is recognised by its content alone."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from veilcast.cli.main import main
from veilcast.errors import ConfigError, StorageError
from veilcast.lab import published_data
from veilcast.lab.data import files_of
from veilcast.lab.experiment import definition
from veilcast.lab.published_data import SOURCES, check_file, import_file, list_published

CONTENT = b"0\t1\n1\t2\n"
FACTS = ("an overlay", "MIT", "somebody", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
NAME = "topology/p2p-Gnutella08.txt.gz"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(published_data._FACTS, NAME, FACTS)


def test_every_source_that_an_experiment_reads_is_listed_with_all_its_facts() -> None:
    read = set[str]()
    for name in definition.packaged_names():
        loaded = definition.load_experiment(name)[1]
        read |= {source for engine in loaded.engines for source in loaded.data_sources(engine)}
    assert read <= set(SOURCES)
    listed = list_published()
    assert [each.file for each in listed] == sorted(file.name for file in files_of(SOURCES))
    for each in listed:
        assert re.fullmatch("[0-9a-f]{64}", each.sha256)
        assert all((each.content, each.licence, each.citation, each.origin, each.size))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "stored",
    [
        CONTENT,
        gzip.compress(CONTENT, mtime=0),
        gzip.compress(CONTENT[:4], mtime=0) + gzip.compress(CONTENT[4:], mtime=0),
    ],
)
def test_a_downloaded_file_is_put_in_its_place_whatever_its_name_and_packing(stored: bytes, tmp_path: Path) -> None:
    download, folder = tmp_path / "download (1).bin", tmp_path / "data"
    download.write_bytes(stored)
    found = import_file(download, folder)
    assert (found.source, found.file) == ("gnutella", NAME)
    assert gzip.decompress((folder / NAME).read_bytes()) == CONTENT
    assert check_file(found, folder) == "there"
    before = (folder / NAME).stat().st_mtime_ns
    assert import_file(download, folder) == found
    assert (folder / NAME).stat().st_mtime_ns == before
    assert [path.name for path in (folder / "topology").iterdir()] == [Path(NAME).name]


@pytest.mark.usefixtures("small")
def test_other_content_is_refused_in_one_line_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, folder = tmp_path / "p2p-Gnutella08.txt", tmp_path / "data"
    other.write_bytes(CONTENT + b"3\t4\n")
    with pytest.raises(
        ConfigError, match=r"is none of the published files: .*topology/p2p-Gnutella08.*8 bytes"
    ) as told:
        import_file(other, folder)
    assert "\n" not in str(told.value)
    assert not folder.exists()
    other.write_bytes(gzip.compress(CONTENT)[:-4])
    with pytest.raises(StorageError, match="packed, and damaged"):
        import_file(other, folder)
    with pytest.raises(StorageError, match="cannot read"):
        import_file(tmp_path / "none", folder)
    monkeypatch.setattr(published_data, "_SIZE_MAX", 4)
    other.write_bytes(CONTENT)
    with pytest.raises(ConfigError, match="larger than 4 bytes"):
        import_file(other, folder)


@pytest.mark.usefixtures("small")
def test_a_file_that_was_changed_in_the_folder_is_told_and_replaced(tmp_path: Path) -> None:
    target = tmp_path / "data" / NAME
    target.parent.mkdir(parents=True)
    target.write_bytes(gzip.compress(b"changed"))
    [published] = [each for each in list_published() if each.file == NAME]
    assert check_file(published, tmp_path / "data") == "another content"
    (tmp_path / "good").write_bytes(CONTENT)
    import_file(tmp_path / "good", tmp_path / "data")
    assert check_file(published, tmp_path / "data") == "there"


@pytest.mark.usefixtures("small")
def test_the_command_lists_and_imports(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VEILCAST_DATA", raising=False)
    folder = tmp_path / "data"
    (tmp_path / "good").write_bytes(CONTENT)
    assert main(["lab", "data"]) == 0
    assert "no data folder is named; 0 of 8" in capsys.readouterr().out.replace(": --data DIR, or VEILCAST_DATA", "")
    assert main(["lab", "data", "import", str(tmp_path / "good")]) == 3
    assert "name the data folder" in capsys.readouterr().err
    assert main(["lab", "data", "import", "--data", str(folder)]) == 3
    assert "name the files" in capsys.readouterr().err
    assert main(["lab", "data", "list", str(folder)]) == 3
    monkeypatch.setenv("VEILCAST_DATA", str(folder))
    capsys.readouterr()
    assert main(["lab", "data", "import", str(tmp_path / "good"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["imported"][0]["path"] == str(folder / NAME)
    assert main(["lab", "data", "--json"]) == 0
    states = {each["file"]: each["state"] for each in json.loads(capsys.readouterr().out)["files"]}
    assert states.pop(NAME) == "there"
    assert set(states.values()) == {"missing"}
