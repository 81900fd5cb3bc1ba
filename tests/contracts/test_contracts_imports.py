"""The import direction, read off the source: it is stated once, in pyproject.toml, and nothing else may disagree."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import leakgauge

ROOT, PACKAGE = Path(__file__).parents[2], Path(leakgauge.__file__).parent
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
(TRUTH,) = (one for one in CONTRACTS if one["type"] == "forbidden")
(ORDER,) = (one for one in CONTRACTS if one["type"] == "layers")
LAYERS = [[room.strip().removeprefix("leakgauge.") for room in layer.split("|")] for layer in ORDER["layers"]]
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
BY_NAME = (PACKAGE / "factories.py", PACKAGE / "__init__.py")
"""The files that import by name: a user's own model, and a room once it is asked for."""


def imported(path: Path) -> Iterator[str]:
    """Every module a file names, in whatever form and wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            # `from leakgauge import params` names a module too.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            assert path in BY_NAME or name not in ("__import__", "import_module"), f"{path} imports by name"


def files(room: str) -> list[Path]:
    return [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").is_file() else sorted((PACKAGE / room).rglob("*.py"))


def test_every_room_has_its_place_in_the_order():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert rooms - {"__init__", "__main__", "public"} == RANK.keys()


@pytest.mark.parametrize("room", [room for layer in LAYERS[LAYERS.index(["catalogue"]) :] for room in layer])
def test_a_file_imports_only_what_lies_below_it(room):
    for path in files(room):
        names = {name for name in imported(path) if name.startswith("leakgauge.")}
        assert "leakgauge" not in set(imported(path)), path
        for other in {name.split(".")[1] for name in names} - {room}:
            assert RANK[other] > RANK[room], f"{path} imports {other}"


def test_no_attack_can_reach_the_truth():
    hidden = tuple(TRUTH["forbidden_modules"])
    assert {"leakgauge.data", "leakgauge.defences", "leakgauge.metrics", "leakgauge.audit"} <= set(hidden)
    assert all(not name.startswith(hidden) for path in files("attacks") for name in imported(path))


def test_the_architecture_tells_the_order_that_is_checked():
    told = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    assert "\n".join("    " + " | ".join(layer) for layer in LAYERS) in told


def test_the_reader_of_imports_sees_every_form(tmp_path):
    source = "import leakgauge.data\nfrom leakgauge import metrics\ndef f():\n    from leakgauge.audit.run import run\n"
    (tmp_path / "sly.py").write_text(source)
    assert set(imported(tmp_path / "sly.py")) == {"leakgauge.data", "leakgauge.metrics", "leakgauge.audit.run.run"}
    (tmp_path / "slyer.py").write_text("import importlib\nimportlib.import_module('leakgauge.data')\n")
    with pytest.raises(AssertionError):
        list(imported(tmp_path / "slyer.py"))
