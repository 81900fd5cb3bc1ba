"""Every committed result: ten questions, one page of answers, one page of rows for each paper, and plots.

    python benchmarks/page.py                # write docs/questions.md, docs/results.md and docs/results/
    python benchmarks/page.py --check        # fail if they are not what the result files say

The pages are made of benchmarks/results/*.json alone, so that no number on them was typed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import answers
import readings
import reproduced
import ten_questions
from answers import PAPERS, paper_of
from leakgauge.files import write_text
from readings import Result
from result_tables import anchor, section, title

DOCS = readings.ROOT / "docs"
_READING = f"""Each file in `benchmarks/results/` holds every victim, every null and what the attacker was told.
The null is the same attack on an update that has nothing to do with the victim. ± is the standard deviation over
updates unless said otherwise; a dash means that nothing was published or measured. A row is "{readings.AT_NULL}" when
it is not beyond the null by two standard errors of the difference, and "{readings.OLDER}" when the code has since
changed what it would do.
"""
_QUESTIONS = """# Ten questions

Made by `python benchmarks/page.py` of the files in `benchmarks/results/`; no number here was typed. Each answer is of
the attacks and models of its rows: an attack that finds nothing proves nothing of a stronger one. A null is the same
attack on an update that has nothing to do with the victim. More questions: [results.md](results.md).
"""


def pages(results: Mapping[str, Result]) -> dict[Path, str]:
    """Every page and plot, by where it lies."""
    found, drawn = answers.page(results)
    asked, small = ten_questions.page(results, lambda name: f"results/{paper_of(name)}.md#{anchor(name)}")
    listed = "\n".join(f"- [{words}](results/{paper}.md)" for paper, words in PAPERS.items())
    head = f"# Results: what was asked and what was found\n\nMade by `python benchmarks/page.py`. {_READING}"
    first = "Ten questions that are asked most, in two sentences each: [questions.md](questions.md).\n"
    parts = [
        f"{head}\n{first}\nAll rows, a page for each paper:\n\n{listed}\n",
        reproduced.section(results, PAPERS),
        found,
    ]
    written = {DOCS / "results.md": "\n".join(parts), DOCS / "questions.md": f"{_QUESTIONS}\n{asked}"}
    written |= {DOCS / "results" / file: plot for file, plot in {**drawn, **small}.items()}
    return written | {DOCS / "results" / f"{paper}.md": paper_page(paper, results) for paper in PAPERS}


def paper_page(paper: str, results: Mapping[str, Result]) -> str:
    """Every row of a paper's tables."""
    own = {name: result for name, result in results.items() if paper_of(name) == paper}
    head = (
        f"# {PAPERS[paper]}\n\nMade by `python benchmarks/page.py`; the answers are in [results.md](../results.md).\n"
    )
    contents = "\n".join(f"- [{title(name, result)}](#{anchor(name)})" for name, result in own.items())
    return "\n".join([head + _READING, f"{contents}\n", *(section(name, result) for name, result in own.items())])


def stale(written: Mapping[Path, str]) -> list[str]:
    """The pages that are not what the result files say, and files that none of them makes."""
    wrong = [path for path, text in written.items() if not path.is_file() or path.read_text("utf-8") != text]
    left = set((DOCS / "results").iterdir()) - written.keys() if (DOCS / "results").is_dir() else set()
    return sorted(path.relative_to(readings.ROOT).as_posix() for path in {*wrong, *left})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare; exit with 1 when a page is out of date")
    written = pages(readings.load())
    if not parser.parse_args().check:
        for path, text in written.items():
            path.parent.mkdir(exist_ok=True)
            write_text(path, text)
        return 0
    for name in (wrong := stale(written)):
        print(f"{name} is not what benchmarks/results/ says; run `python benchmarks/page.py`.", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
