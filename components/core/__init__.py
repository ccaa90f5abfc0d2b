"""The domain that the steps share: problems, objectives, formats, policies, compilers, flips, projects."""
