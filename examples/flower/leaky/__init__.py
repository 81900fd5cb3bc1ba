"""Two clients with a photograph each, and what their updates give away."""
