"""The house rules that a program can check: small files, small functions, types instead of probing."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import leakgauge

PACKAGE = Path(leakgauge.__file__).parent
FILES = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def parsed() -> dict[Path, tuple[ast.AST, ...]]:
    """Every node of every file; parsed where it is asked for, not by every process that collects tests."""
    return {path: tuple(ast.walk(ast.parse(source))) for path, source in FILES.items()}


def functions() -> Iterator[tuple[str, int]]:
    """Every function with the lines of its body, signature and options aside."""
    for path, nodes in parsed().items():
        for node in nodes:
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


RUNNING = {"eval", "exec", "compile", "__import__"}
"""Built-in functions that run a text."""
SERIAL = {"pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib", "yaml"}
"""Modules that run what they read."""
STARTING = {"os.system", "os.popen", "subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_output"}
OWN_WORKERS = {"audit/executors/processes.py", "audit/executors/ray_cluster.py"}
"""Which read what this process itself sent them, through a pipe of their own or the cluster's store."""


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Every call: the file, the called name with its dots, and the call."""
    for path, nodes in parsed().items():
        for node in nodes:
            if isinstance(node, ast.Call):
                yield path.relative_to(PACKAGE).as_posix(), dotted(node.func), node


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def says(call: ast.Call, option: str, value: object) -> bool:
    return any(
        word.arg == option and isinstance(word.value, ast.Constant) and word.value.value is value
        for word in call.keywords
    )


def runs_what_it_reads(name: str, call: ast.Call) -> bool:
    """Whether a call evaluates a text, starts a program, or tells a reader to trust a file."""
    return (
        name in RUNNING | STARTING
        or says(call, "shell", True)
        or (name == "torch.load" and not says(call, "weights_only", True))
        or (name in ("np.load", "numpy.load") and not says(call, "allow_pickle", False))
    )


def test_nothing_that_is_read_is_run():
    assert [f"{file}: {name}" for file, name, call in calls() if runs_what_it_reads(name, call)] == []


PLANTED = {
    "eval(x)": "S307",
    "exec(x)": "S102",
    "os.system(x)": "S605",
    "subprocess.run(x, shell=True)": "S602",
    "pickle.loads(x)": "S301",
    "torch.load(x)": None,
    "torch.load(x, weights_only=False)": None,
    "numpy.load(x, allow_pickle=True)": None,
    "compile(x, x, x)": None,
}
"""Lines that no file of the package may hold, and the rule of ruff that forbids them, where it has one."""


@pytest.mark.parametrize("line", PLANTED)
def test_a_planted_line_that_runs_what_it_reads_is_found(line: str):
    """By the rule above, and by ruff as `make check` calls it."""
    (call,) = [node for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Call)]
    assert runs_what_it_reads(dotted(call.func), call) or line.startswith("pickle.")  # of which there is a rule below
    source = f"import os, pickle, subprocess\n\nimport numpy\nimport torch\n\nx = os, pickle, numpy, torch\n{line}\n"
    asked = ("check", "--output-format", "concise", "--no-cache", "--stdin-filename")
    linted = subprocess.run(
        [sys.executable, "-m", "ruff", *asked, str(PACKAGE / "planted.py"), "-"],
        input=source,
        cwd=PACKAGE.parents[1],
        capture_output=True,
        text=True,
    )
    assert PLANTED[line] is None or f" {PLANTED[line]} " in linted.stdout, linted


def test_only_our_own_workers_read_pickles_and_only_from_us():
    loading = {
        file
        for file, name, _ in calls()
        if name.split(".")[-1] in ("load", "loads", "Unpickler") and name.split(".")[-2:][0] in SERIAL
    }
    assert loading == OWN_WORKERS
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path, nodes in parsed().items()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        if module.split(".")[0] in SERIAL
    }
    assert importing <= OWN_WORKERS | {"audit/executors/base.py"}  # which seals what they read
