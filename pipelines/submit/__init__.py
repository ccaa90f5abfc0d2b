"""Submit a compiled pipeline to a KFP server or Vertex AI, and follow the run."""
