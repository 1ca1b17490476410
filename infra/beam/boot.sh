#!/bin/sh
# Starts one Beam worker; the command of a PROCESS environment and of a worker pool. TAGLOOM_PYTHON names the Python of
# an environment that has Tagloom.
exec "${TAGLOOM_PYTHON:-python3}" -P -m pipelines.beam_boot "$@"
