"""Cases, runs, results: the pipeline and where it keeps what it found."""
