"""Environment of every node of a Ray cluster: local ones, those in k8s/, and others."""

REPLY_BYTES = 1_000_000
"""Size limit of direct answers. Larger ones (Ray's default: 100 KB) pass through the object stores of both nodes, which
takes the head two to four times as long per answer; see docs/performance.md."""
SUBREAPER = "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper"
NODE_SETTINGS = {
    # Send no usage statistics.
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray, too, kills the children of a dead worker, not only the worker's reaper. It also makes all processes of Ray
    # ignore SIGCHLD, which components.platform.processes.supervision.restore_sigchld undoes.
    SUBREAPER: "true",
    "RAY_max_direct_call_object_size": str(REPLY_BYTES),
    # No log of every call, which is large.
    "RAY_task_events_report_interval_ms": "0",
    # With Ray's default of 15, compiles stop while anything else uses the processor.
    "RAY_worker_niceness": "0",
}
CACHE_GB = "MLGO_MODULE_CACHE_GB"
"""Environment variable of a node: size of its cache of modules from object storage, in GB."""
DEFAULT_CACHE_GB = 4.0
