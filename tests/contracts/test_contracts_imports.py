"""The import direction, read off the source: nothing in attacks/ can see the truth."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import leakgauge

PACKAGE = Path(leakgauge.__file__).parent
# types <- params <- {protocol | generative} <- encryption <- {defences | attacks | metrics | models | data} <- ...
FOUNDATION = {"types", "params", "errors", "files", "randomness", "structural_similarity", "version"}
ALLOWED = {
    "protocol": FOUNDATION | {"protocol"},
    "encryption": FOUNDATION | {"protocol", "encryption"},
    "generative": FOUNDATION | {"generative", "threads"},
    "attacks": FOUNDATION | {"protocol", "generative", "encryption", "factories", "attacks"},
    "defences": FOUNDATION | {"protocol", "encryption", "defences"},
    "metrics": FOUNDATION | {"protocol", "metrics"},
    "data": FOUNDATION | {"protocol", "data"},
    "models": FOUNDATION | {"protocol", "models"},
}


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
            assert name not in ("__import__", "import_module"), f"{path} imports by name"


FILES = [path for folder in ALLOWED for path in sorted((PACKAGE / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=[path.relative_to(PACKAGE).as_posix() for path in FILES])
def test_a_file_imports_only_what_lies_below_it(path):
    layer = path.relative_to(PACKAGE).parts[0]
    parts = {name.split(".")[1] for name in imported(path) if name.startswith("leakgauge.")}
    assert parts <= ALLOWED[layer]
    assert "leakgauge" not in set(imported(path))


def test_no_attack_can_reach_the_truth():
    for path in (PACKAGE / "attacks").rglob("*.py"):
        for name in imported(path):
            assert not name.startswith(tuple(f"leakgauge.{part}" for part in ("data", "defences", "metrics", "audit")))


def test_the_reader_of_imports_sees_every_form(tmp_path):
    source = "import leakgauge.data\nfrom leakgauge import metrics\ndef f():\n    from leakgauge.audit.run import run\n"
    (tmp_path / "sly.py").write_text(source)
    assert set(imported(tmp_path / "sly.py")) == {"leakgauge.data", "leakgauge.metrics", "leakgauge.audit.run.run"}
    (tmp_path / "slyer.py").write_text("import importlib\nimportlib.import_module('leakgauge.data')\n")
    with pytest.raises(AssertionError):
        list(imported(tmp_path / "slyer.py"))
