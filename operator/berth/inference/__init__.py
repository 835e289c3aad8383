"""Decisions about InferenceServices: what may carry them, how much they need, and the cheapest way to have it."""
