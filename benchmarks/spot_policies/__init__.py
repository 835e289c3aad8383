"""Policies for spot capacity that ``benchmarks.spot`` compares."""
