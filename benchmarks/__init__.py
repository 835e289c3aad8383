"""Measurements of the operator as a black box: what it does to a real control plane, timed and checked from outside."""
