"""The house rules that a program can check: small files, small functions, types instead of probing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import leakgauge

PACKAGE = Path(leakgauge.__file__).parent
FILES = {path: path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
NODES = {path: tuple(ast.walk(ast.parse(source))) for path, source in FILES.items()}


def functions() -> Iterator[tuple[str, int]]:
    """Every function with the lines of its body, signature and options aside."""
    for path, nodes in NODES.items():
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
    for path, nodes in NODES.items():
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


def test_nothing_that_is_read_is_run():
    """No text is evaluated, no program started, and no reader is told to trust a file."""
    found = [f"{file}: {name}" for file, name, _ in calls() if name in RUNNING | STARTING]
    found += [f"{file}: {name}" for file, name, call in calls() if says(call, "shell", True)]
    found += [
        f"{file}: {name}"
        for file, name, call in calls()
        if name == "torch.load" and not says(call, "weights_only", True)
    ]
    found += [
        f"{file}: {name}"
        for file, name, call in calls()
        if name in ("np.load", "numpy.load") and not says(call, "allow_pickle", False)
    ]
    assert found == []


def test_only_our_own_workers_read_pickles_and_only_from_us():
    loading = {
        file
        for file, name, _ in calls()
        if name.split(".")[-1] in ("load", "loads", "Unpickler") and name.split(".")[-2:][0] in SERIAL
    }
    assert loading == OWN_WORKERS
    importing = {
        path.relative_to(PACKAGE).as_posix()
        for path, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for module in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names])
        if module.split(".")[0] in SERIAL
    }
    assert importing <= OWN_WORKERS
