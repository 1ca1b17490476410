# vLLM with what a worker of the extract stage imports: GPU workers of Ray. The rest of Tagloom's libraries is absent.
# After the CPU image, from the repository:
#   docker build -f infra/images/gpu.Dockerfile --build-arg CPU_IMAGE=REGISTRY/tagloom-cpu:0.1.0 -t REGISTRY/tagloom-gpu:0.1.0 .
# CUDA's libraries come with the wheels; the machine brings the driver and NVIDIA's container toolkit.
ARG CPU_IMAGE=tagloom-cpu:0.1.0
FROM ${CPU_IMAGE} AS tagloom

# Python is the CPU image's to the last digit, as Ray demands of all nodes.
FROM python:3.11.15-slim-bookworm
# gcc and g++: Triton compiles kernels when a model loads. The rest as in the CPU image.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ gcc libc6-dev openssh-client rsync wget \
    && rm -rf /var/lib/apt/lists/*
COPY infra/images/gpu-requirements.txt /opt/tagloom/requirements.txt
RUN python -m pip install --no-cache-dir --no-deps --requirement /opt/tagloom/requirements.txt
COPY --from=tagloom /opt/tagloom/*.whl /opt/tagloom/
RUN python -m pip install --no-cache-dir --no-deps /opt/tagloom/*.whl
RUN useradd --uid 1000 --create-home tagloom
# Models are kept below HF_HOME: mount a volume there, and no pod fetches what another has.
ENV PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 RAY_USAGE_STATS_ENABLED=0 HF_HOME=/home/tagloom/models
USER 1000
WORKDIR /home/tagloom
# What a node does is told by KubeRay, the cluster launcher or a hand: ray start --address=HEAD:6379 --block
ENTRYPOINT ["ray"]
CMD ["start", "--help"]
