"""Settings files of the command line: a run file, profiles over it, options over both."""

from jobs import options

RUN = "corpus: c\ninputs: [logs]\nbeam: {runner: DirectRunner, direct_num_workers: 2}\nrank: {depth: 10}\n"


def test_profiles_lie_over_the_run_file_and_below_options(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "_beam_settings", ["beam.parallelism=3"])
    run, flink, deep = (tmp_path / name for name in ("run.yaml", "flink.yaml", "deep.yaml"))
    run.write_text(RUN)
    flink.write_text("beam: {runner: FlinkRunner, parallelism: 8, flink_master: h:1}\n")
    deep.write_text("rank: {depth: 20}\nname: deep\n")
    for given in (([str(run)], [str(flink), str(deep)]), (None, [str(run), str(flink), str(deep)])):
        config = options.configure(*given, ["rank.depth=30"], name="mine")
        assert config.beam == {"runner": "FlinkRunner", "parallelism": 3, "flink_master": "h:1"}
        assert (config.rank.depth, config.name, config.inputs) == (30, "mine", ("logs",))
    alone = options.configure(None, str(run), None)
    assert alone.beam == {"runner": "DirectRunner", "direct_num_workers": 2, "parallelism": 3}


def test_a_profile_beside_inputs_is_no_input(tmp_path):
    flink = tmp_path / "flink.yaml"
    flink.write_text("beam: {runner: FlinkRunner}\n")
    config = options.configure(["logs/"], [str(flink)], None, corpus="c")
    assert (config.inputs, config.beam) == (("logs/",), {"runner": "FlinkRunner"})
