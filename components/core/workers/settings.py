"""What every node of a Ray cluster is told by its environment, here, in k8s/ and wherever else nodes are started."""

REPLY_BYTES = 1_000_000
"""What a worker may answer a call with. Above that (Ray's default: 100 KB) it goes through the object stores of both
nodes, which has the head work two to four times as long for each answer; see docs/scale.md."""
NODE_SETTINGS = {
    # Nothing about a training is anybody else's.
    "RAY_USAGE_STATS_ENABLED": "0",
    # The children of a worker that died are killed by Ray, too, not only by the worker's own guard. It also ignores
    # SIGCHLD in every process of Ray's, which components.core.processes.supervision.restore_sigchld undoes.
    "RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper": "true",
    "RAY_max_direct_call_object_size": str(REPLY_BYTES),
    # A large log on each machine, of every call.
    "RAY_task_events_report_interval_ms": "0",
    # Not 15, with which compiles stand still while anything else wants the processor.
    "RAY_worker_niceness": "0",
}
"""Environment variable -> value."""
CACHE_GB = "MLGO_MODULE_CACHE_GB"
"""Environment variable of a node: how many GB of modules from object storage it keeps. Default: DEFAULT_CACHE_GB."""
DEFAULT_CACHE_GB = 4.0
