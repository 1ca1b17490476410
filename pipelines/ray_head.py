"""A local Ray in a process of its own: ``python -m pipelines.ray_head WORKERS``.

It prints its address and ends when its standard input does, so it never outlives the run that started it. A process of
its own because Ray forks when it starts, and forks are not safe beside the threads of a Beam pipeline.
"""

from __future__ import annotations

import sys

READY = "tagloom-ray-address:"
OBJECT_STORE_BYTES = 200 << 20
"""Ray's shared memory; tables never pass through it."""


def main() -> None:
    """Start Ray, tell where it is, and wait."""
    import ray

    ray.init(
        num_cpus=int(sys.argv[1]),
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        log_to_driver=False,
        configure_logging=False,
    )
    sys.stdout.write(f"{READY}{ray.get_runtime_context().gcs_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
