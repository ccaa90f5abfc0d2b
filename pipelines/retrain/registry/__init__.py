"""Model registries: the deployed policy as a version of a model in Vertex AI or in Kubeflow."""
