# Tagloom, whole, with storage and runners: heads and CPU workers of Ray, Beam's workers, drivers.
# From the repository: docker build -f infra/images/cpu.Dockerfile -t REGISTRY/tagloom-cpu:0.1.0 .
# Python is the GPU image's to the last digit, as Ray demands of all nodes.
FROM python:3.11.15-slim-bookworm AS base
# wget: KubeRay's probes. ssh and rsync: Ray's cluster launcher on VMs.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/*
# Not in a virtual environment: KubeRay and the cluster launcher start login shells, which know /usr/local/bin alone.
COPY infra/images/cpu-requirements.txt /opt/tagloom/requirements.txt
RUN python -m pip install --no-cache-dir --no-deps --requirement /opt/tagloom/requirements.txt

FROM base AS wheel
COPY . /src
WORKDIR /src
# The very wheel that `tagloom submit` sends.
RUN python -c "import pathlib; from jobs.cluster_package import build_wheel; build_wheel(pathlib.Path('/opt/tagloom'))"

FROM base
COPY --from=wheel /opt/tagloom/*.whl /opt/tagloom/
RUN python -m pip install --no-cache-dir --no-deps /opt/tagloom/*.whl && python -m pip check
# What Beam's runners call where this image is their worker (docs/runners.md).
COPY infra/beam/boot.sh infra/beam/pool.sh /opt/tagloom/
# Embeddings work offline: the model is in the wordllama package. Nothing is written but to HOME and /tmp.
RUN useradd --uid 1000 --create-home tagloom
ENV PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 RAY_USAGE_STATS_ENABLED=0
USER 1000
WORKDIR /home/tagloom
ENTRYPOINT ["tagloom"]
CMD ["--help"]
