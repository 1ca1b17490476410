"""Shared fixtures: a small synthetic corpus, made once, and one Ray for the whole test session."""

from pathlib import Path

import pytest

from transforms import synth

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def logs(tmp_path_factory) -> Path:
    """A folder of synthetic logs: 120 interactions in 6 cases, with questions."""
    folder = tmp_path_factory.mktemp("logs")
    synth.write(str(folder), size=120, cases=6, seed=3)
    return folder


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The real data, where it lies beside the project; tests that need it skip elsewhere."""
    if not SHARED.is_dir():
        pytest.skip("the real data sets are not part of the repository (see README, section 'Real data')")
    return SHARED


@pytest.fixture(scope="session")
def ray_session():
    """One local Ray with two workers for all tests that need one."""
    from pipelines.ray_session import connected
    from schemas.config import ComputeConfig

    with connected(ComputeConfig(workers=2), 2):
        yield
