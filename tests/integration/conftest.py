"""What integration tests share: an S3 on loopback."""

import pytest


@pytest.fixture(scope="module")
def server():
    """A proxy that leads to an S3, and can be told to fail."""
    from tests.integration import s3  # loads moto, which other tests do not need

    with s3.served() as proxy:
        yield proxy


@pytest.fixture
def place(server):
    """A new bucket, and the proxy."""
    from tests.integration import s3

    yield s3.bucket(server), server
    server.begin()
