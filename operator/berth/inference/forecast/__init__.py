"""Forecasts of work, chosen per service by what they would have cost."""
