"""The forms of a policy that need TensorFlow. Nothing else of the domain imports TensorFlow."""
