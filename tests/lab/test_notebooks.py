"""The notebooks among the examples run from the first cell to the last, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from support.waits import HANG_S

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
CHART = "image/svg+xml"


def read(path: Path) -> Any:
    return nbformat.read(path, 4)  # type: ignore[no-untyped-call]


def test_there_are_three_notebooks_without_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        notebook = read(path)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert code
        assert all(not cell.outputs and cell.execution_count is None for cell in code), path.name


@pytest.mark.all_only
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_draws_a_chart(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    notebook = read(path)
    client = NotebookClient(notebook, timeout=HANG_S, resources={"metadata": {"path": str(tmp_path)}})
    done = client.execute()
    kinds = [kind for cell in done.cells for output in cell.get("outputs", ()) for kind in output.get("data", ())]
    assert CHART in kinds


@pytest.mark.all_only
@pytest.mark.filterwarnings("default")
def test_a_notebook_with_a_fault_fails(tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    broken = read(NOTEBOOKS[0])
    broken.cells = [cell for cell in broken.cells if cell.cell_type == "code"][:1]
    broken.cells[0].source = "assert False, 'planted'"
    with pytest.raises(CellExecutionError, match="planted"):
        NotebookClient(broken, timeout=HANG_S, resources={"metadata": {"path": str(tmp_path)}}).execute()
