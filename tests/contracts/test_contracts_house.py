"""The house rules that a program can check: small files, small functions, types instead of probing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import leakgauge

PACKAGE = Path(leakgauge.__file__).parent
FILES = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def functions() -> Iterator[tuple[str, int]]:
    """Every function with the lines of its body, signature and options aside."""
    for path, source in FILES.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                body = (node.end_lineno or 0) - node.body[0].lineno + 1
                yield f"{path.relative_to(PACKAGE)}: {node.name}", body


def test_no_file_has_more_than_400_lines():
    assert [str(path) for path, source in FILES.items() if source.count("\n") > 400] == []


def test_no_function_has_more_than_60_lines():
    assert [name for name, lines in functions() if lines > 60] == []


def test_no_value_is_asked_whether_it_happens_to_have_an_attribute():
    probing = [str(path) for path, source in FILES.items() if "hasattr(" in source]
    assert probing == []
