"""The papers' tables, measured here: what was published beside what we find."""

from leakgauge.reproduce.measures.updates import Setting
from leakgauge.reproduce.outdated import outdated_rows
from leakgauge.reproduce.registry import TABLES, named_table
from leakgauge.reproduce.result import TableResult
from leakgauge.reproduce.run import Options, prepare, reproduce
from leakgauge.reproduce.scales import SCALES, Scale
from leakgauge.reproduce.table import Found, Measure, Measured, Published, Row, Table
