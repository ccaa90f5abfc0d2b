"""The form of TensorFlow's ahead-of-time compiler, and policies of others that have no form but it."""
