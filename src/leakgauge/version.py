"""The version, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("leakgauge")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "0+unknown"
