#!/bin/sh
# Starts Beam workers for whoever asks at a port (50000): an EXTERNAL environment. Run it beside each machine that runs
# stages, in an environment that has Tagloom; TAGLOOM_PYTHON names its Python.
exec "${TAGLOOM_PYTHON:-python3}" -P -m apache_beam.runners.worker.worker_pool_main \
    --service_port="${1:-50000}" --container_executable="$(dirname "$(readlink -f "$0")")/boot.sh"
