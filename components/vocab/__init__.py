"""The vocab step: computes the quantiles of each feature over a trace, by which a policy normalizes."""
