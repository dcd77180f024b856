"""Offline federated reinforcement learning that works when clients' data differ in quality."""

__version__ = "0.1.0"
