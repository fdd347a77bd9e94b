"""From documents and logs to a better retrieval embedding model, in one command-line pipeline."""

__version__ = "0.1.0"
