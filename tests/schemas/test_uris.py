"""Secrets in URIs: which are found, and what is shown instead."""

import pickle

import pytest

from schemas.errors import InputError
from schemas.uris import secret_in, shown

PRESIGNED = "https://b.s3.amazonaws.com/a.jsonl?X-Amz-Algorithm=AWS4&X-Amz-Signature=hunter2&partNumber=1"


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("https://u:hunter2@h/a.jsonl", "no user and no password"),
        ("https://hunter2@h/a.jsonl", "no user and no password"),
        ("HTTPS://u:hunt@er2@h", "no user and no password"),
        ("ftp://u:hunter2@h/a", "no user and no password"),
        ("zip://a.jsonl::https://u:hunter2@h/a.zip", "no user and no password"),
        (PRESIGNED, "'X-Amz-Algorithm'"),
        ("https://h/a?sv=2022&sig=hunter2", "'sig'"),
        ("https://h/a?x=1&%73ig=hunter2", "'sig'"),
        ("https://h/a?Signature=hunter2", "'Signature'"),
        ("https://h/a?access_token=hunter2#x", "'access_token'"),
        ("https://h/a?token=", "'token'"),
        ("https://h/a?api-key=hunter2", "'api-key'"),
        ("https://h/a?x-goog-credential=hunter2", "'x-goog-credential'"),
    ],
)
def test_secrets_are_found_and_not_shown(uri, told):
    assert told in secret_in(uri) and "hunter2" not in secret_in(uri)
    for text in (uri, f"403, url='{uri}' said no"):
        assert "hunter2" not in shown(text) and "er2" not in shown(text)
    error = InputError(f"cannot read {uri}", where=uri)
    again = pickle.loads(pickle.dumps(error))
    assert "hunter2" not in str(error) + repr(error.args) + str(again) and str(again) == str(error)


@pytest.mark.parametrize(
    "uri",
    [
        *("logs/*.jsonl?", "a@b:c", "/x/a?token=1", "s3://b/a?token=1", "s3://b/x@y:z", "sftp://me@h:22/x"),
        *("abfs://container@account.dfs.core.windows.net/x", "https://h:8080/a@b", "https://h/a#sig=1", "memory://a"),
        "https://h/design?keys=1",
    ],
)
def test_what_is_no_secret(uri):
    assert secret_in(uri) == ""
    assert shown(uri) == uri.replace("?keys=1", "?...")


def test_what_is_shown():
    assert shown(PRESIGNED) == "https://b.s3.amazonaws.com/a.jsonl?..."
    assert shown("https://u:p@h/x, line 5") == "https://...@h/x, line 5"
    assert shown("sftp://u:p@h/x and http://k@h") == "sftp://...@h/x and http://...@h"
    assert shown("is https://h/x missing? Look at a:b@c") == "is https://h/x missing? Look at a:b@c"
