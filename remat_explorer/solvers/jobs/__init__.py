"""Solves in processes of their own: watched, cancelled, and survived when one is killed.

`solve_job` (`SolveJob`) is the parent's side, `worker_process` starts and forks processes, `job_worker` runs in them.
"""
