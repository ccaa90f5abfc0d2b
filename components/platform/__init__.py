"""What runs the steps, and knows no compiler: errors, terminal, processes, storage, workers, RayJobs, launcher."""
