"""InferenceServices: read the caches, decide in the one loop, carry out per service."""
