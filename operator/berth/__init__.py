"""Berth: a Kubernetes operator that gives every AI workload the right berth."""

__version__ = "0.1.0"
