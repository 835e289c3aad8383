"""Autoscaling policies on one footing: those of the field, the planner of this project, and the clairvoyant bound."""
