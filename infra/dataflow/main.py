"""A run of Tagloom as a Dataflow flex template: a pipeline of one element, whose work is `tagloom run`.

A flex template is one pipeline, and who builds it may not wait for it. A run is several, one after the other, with work
in between. So the run happens inside: on the job's one worker, with the same command and the same configuration as
anywhere. Where `settings` names Beam's DataflowRunner, ingest and graph are jobs of their own beside this one.
A worker that is lost is replaced, and the run goes on from its finished parts.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import apache_beam
import yaml
from apache_beam.options.pipeline_options import PipelineOptions

from schemas.config import load_config
from schemas.errors import UsageError

WAIT_SECONDS = 300
"""A worker that was lost still holds the corpus for a while: its lease lapses after 90 seconds."""

SETTLED = {
    0: "",
    2: "a setting is wrong; the lines before say which",
    3: "all results are written; the lines before say what they lack (rejects, shards set aside)",
}
"""Codes that another try would only give again -> what they mean."""


def run_file(corpus: str, inputs: str, settings: str) -> str:
    """Return the run as YAML.

    Args:
        corpus: URI of the corpus.
        inputs: URIs of inputs, with spaces between; empty goes on from what the corpus holds.
        settings: Other settings as YAML, such as ``{rank: {presets: [bm25]}}``.

    Raises:
        ValueError: `settings` is no mapping.
    """
    given = yaml.safe_load(settings) or {}
    if not isinstance(given, dict):
        raise ValueError(f"settings: a {type(given).__name__}, not a mapping such as {{rank: {{depth: 50}}}}")
    run = {**given, "corpus": corpus}
    if inputs.split():
        run["inputs"] = inputs.split()
    return yaml.safe_dump(run, allow_unicode=True)


def run(text: str) -> None:
    """Run Tagloom with a run file; what it prints, and a code that no further try would change, go to the worker's log.

    Raises:
        RuntimeError: It did not end with a code of `SETTLED`. Dataflow tries again then, and finished parts stay.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.yaml")
        path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "jobs.cli", "run", "--config", str(path), "--wait", str(WAIT_SECONDS)]
        told: list[str] = []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                told = [*told[-9:], line.rstrip()]
                logging.info("%s", line.rstrip())
        code = process.returncode
        if code not in SETTLED:
            raise RuntimeError("\n".join([f"tagloom run ended with code {code}", *told]))
        if SETTLED[code]:
            logging.error("tagloom run ended with code %d: %s", code, SETTLED[code])


def main(arguments: list[str] | None = None) -> None:
    """Build the pipeline and hand it to its runner, without waiting for its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--inputs", default="")
    parser.add_argument("--settings", default="{}")
    own, rest = parser.parse_known_args(arguments)
    pipeline = apache_beam.Pipeline(options=PipelineOptions(rest))
    try:  # before a worker is started for it
        text = run_file(own.corpus, own.inputs, own.settings)
        load_config(None, base=yaml.safe_load(text))
    except (UsageError, ValueError, yaml.YAMLError) as error:
        parser.error(str(error))
    _ = pipeline | "Run file" >> apache_beam.Create([text]) | "tagloom run" >> apache_beam.Map(run)
    pipeline.run()


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    main()
