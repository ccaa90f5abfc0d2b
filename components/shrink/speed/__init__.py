"""Speed of builds: compares it by a benchmark of the user, and limits its loss."""
