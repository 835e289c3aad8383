"""A service's plan becomes Kubernetes objects: a Deployment per variant and what all variants share."""
