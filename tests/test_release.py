"""That what is released is what is written down: version, changelog, public names, and a wheel that works alone."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import leakgauge.public

ROOT = Path(__file__).parents[1]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def test_the_changelog_begins_with_the_version_and_its_versions_fall():
    found = re.findall(r"^## (\d+)\.(\d+)\.(\d+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    numbers = [tuple(map(int, one)) for one in found]
    assert ".".join(found[0]) == VERSION
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_citation_is_of_this_version():
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_page_of_what_is_stable_lists_the_public_names_and_no_other():
    block = (ROOT / "docs" / "stability.md").read_text("utf-8").split("The names:\n\n")[1]
    assert sorted(re.findall(r"\w+", block)) == sorted(set(leakgauge.public.__all__))


def test_every_pinned_version_is_pinned_once_and_exactly():
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    names = [line.partition("==")[0].lower().replace("_", "-") for line in lines]
    assert all(re.fullmatch(r"[\w.-]+==[\w.+]+", line) for line in lines)
    assert len(set(names)) == len(names)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of the sdist alone, so that the sdist is whole."""
    folder = tmp_path_factory.mktemp("dist")
    make = "import os, sys, setuptools.build_meta as backend; os.chdir(sys.argv[1]); backend.build_{}(sys.argv[2])"
    source = folder / "source"
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    for name in filter(None, files.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    _run([sys.executable, "-c", make.format("sdist"), str(source), str(folder)])
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    _run([sys.executable, "-c", make.format("wheel"), str(unpacked), str(folder)])
    (built,) = folder.glob("*.whl")
    return built


def _run(words: list[str], **options: object) -> str:
    ended = subprocess.run(words, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    assert ended.returncode == 0, ended.stderr[-2000:]
    return str(ended.stdout)


@pytest.mark.slow
def test_the_wheel_holds_the_package_its_types_and_its_pages_and_nothing_else(wheel: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    own = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    expected = {name for name in own if "__pycache__" not in name and ".egg-info" not in name}
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "leakgauge/py.typed" in names
    assert VERSION in wheel.name


@pytest.mark.slow
def test_the_wheel_audits_in_an_environment_of_its_own(wheel: Path, tmp_path: Path):
    """Beside the installed dependencies, which an index would give, and away from the source."""
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    site = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    zipfile.ZipFile(wheel).extractall(site)  # noqa: S202 - that we have just made
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LEAKGAUGE_WEIGHTS")}
    told = "import leakgauge.version as v, leakgauge; print(leakgauge.__file__, v.VERSION)"
    where, version = _run([str(python), "-c", told], env=clean, cwd=tmp_path).split()
    assert Path(where).is_relative_to(site)
    assert version == VERSION
    words = "audit --dataset digits --model mlp:hidden=(8,) --train-steps 2 --steps 3 --batch-size 1 --nulls 1 --json"
    audited = [str(python), "-m", "leakgauge", *words.split(), "--attack", "linear_layer", "--defence", "none"]
    answer = json.loads(_run(audited, env=clean, cwd=tmp_path))
    assert answer["version"] == VERSION
    assert (tmp_path / "report" / "index.html").is_file()


def test_every_module_that_the_package_imports_at_its_top_is_declared_or_its_own():
    """So that a clean environment has what it needs: extras are imported where they are used."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {re.split(r"[<>=\[]", one)[0].lower() for one in project["dependencies"]}
    known = {"scikit-image": "skimage", "scikit-learn": "sklearn", "pillow": "PIL"}
    allowed = {known.get(name, name) for name in named} | {"leakgauge", "click"} | set(sys.stdlib_module_names)
    found = set()
    for path in (ROOT / "src" / "leakgauge").rglob("*.py"):
        if "integrations" in path.parts:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.Import):
                found |= {one.name.split(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).split(".")[0])
    assert found <= allowed, found - allowed
