"""An S3 on loopback (moto) behind the faulty proxy, reached by the usual environment variables alone."""

import itertools
import logging
import urllib.request
from contextlib import contextmanager

import pytest
from moto.server import ThreadedMotoServer

from tests.integration.faulty_proxy import HOST, proxied

_number = itertools.count()


def environment(url):
    """Return the variables that lead any AWS client to an S3."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def served():
    """Run an S3, and yield the proxy that leads there; this process finds it by its environment."""
    import s3fs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(HOST, 0, verbose=False)
    server.start()
    try:
        with (
            proxied("http://{}:{}".format(*server.get_host_and_port())) as proxy,
            pytest.MonkeyPatch.context() as patch,
        ):
            for key, value in environment(proxy.url).items():
                patch.setenv(key, value)
            s3fs.S3FileSystem.clear_instance_cache()  # such as were made know the variables of before
            yield proxy
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


def bucket(proxy):
    """Make a new bucket, and return its URI; the proxy begins anew."""
    name = f"bucket{next(_number)}"
    proxy.begin()
    with urllib.request.urlopen(urllib.request.Request(f"{proxy.url}/{name}", method="PUT")):
        proxy.seen.clear()
    return f"s3://{name}"
