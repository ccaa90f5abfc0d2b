"""The vocab step: the distribution of each feature over a trace, as quantiles that a policy normalises by."""
