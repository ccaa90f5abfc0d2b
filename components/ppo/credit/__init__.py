"""What a decision is worth: measured by counterfactual compiles, or estimated from samples of a policy."""
