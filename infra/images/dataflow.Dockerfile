# The Dataflow flex template: the CPU image with Beam's worker and Google's launcher. One image launches and works.
# After the CPU image, from the repository:
#   docker build -f infra/images/dataflow.Dockerfile --build-arg CPU_IMAGE=REGISTRY/tagloom-cpu:0.1.0 -t REGISTRY/tagloom-dataflow:0.1.0 .
ARG CPU_IMAGE=tagloom-cpu:0.1.0
FROM ${CPU_IMAGE}
# Dataflow's workers hand the container folders of the host that belong to root, so this image alone runs as root.
USER root
# The number is that of apache-beam in infra/constraints.txt.
COPY --from=apache/beam_python3.11_sdk:2.77.0 /opt/apache/beam /opt/apache/beam
COPY --from=gcr.io/dataflow-templates-base/python311-template-launcher-base:20240812-rc01 /opt/google/dataflow/python_template_launcher /opt/google/dataflow/python_template_launcher
COPY infra/dataflow/main.py /template/main.py
ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/main.py
# Everything is installed: no environment is to be made on each worker.
ENV RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
WORKDIR /template
# The launcher is called by its path; workers start here.
ENTRYPOINT ["/opt/apache/beam/boot"]
CMD []
