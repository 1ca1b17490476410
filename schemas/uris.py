"""What of a URI may be shown and kept: no password, no signature."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

_PASSWORD = re.compile(r"(?i)^[a-z][a-z0-9+.-]*://[^/]*:[^/]*@")
_USER = re.compile(r"(?i)^https?://[^/?#]*@")
_QUERY = re.compile(r"(?i)^https?://[^?#]*\?([^#]*)")
_SECRETS = frozenset(
    (
        *("sig", "signature", "token", "secret", "password", "passwd", "pwd", "credential", "credentials"),
        *("key", "apikey", "accesskey", "accesskeyid", "awsaccesskeyid", "googleaccessid", "keypairid"),
        *("auth", "authorization", "jwt", "policy"),
    )
)
"""Names of parameters, without what parts their words, that hold a secret."""
_USER_SHOWN = re.compile(r"(?i)(https?://)[^/?#\s'\"<>]*@|(://)[^/:\s'\"<>]*:[^/\s'\"<>]*@")
_QUERY_SHOWN = re.compile(r"(?i)(https?://[^?\s'\"<>]*\?)[^\s'\"<>]+")


def shown(text: str) -> str:
    """Return a URI, or a text that may hold some, without users, passwords and the queries of web addresses."""
    if "://" not in text:
        return text
    return _QUERY_SHOWN.sub(r"\1...", _USER_SHOWN.sub(r"\1\2...@", text))


def secret_in(uri: str) -> str:
    """Tell which secret a URI holds; empty where none is known.

    A password is one under any protocol, a user or a parameter such as ``sig`` where the protocol is http or https.
    """
    for link in uri.split("::"):
        if _USER.match(link) or _PASSWORD.match(link):
            return "an address holds no user and no password"
        if found := _QUERY.match(link):
            for name, _ in parse_qsl(found[1], keep_blank_values=True):
                if _is_secret(name):
                    return f"an address holds no secret, and the parameter '{name}' is one"
    return ""


def _is_secret(name: str) -> bool:
    plain = re.sub(r"[^a-z0-9]", "", name.lower())
    return (
        plain in _SECRETS
        or plain.startswith(("xamz", "xgoog", "xoss"))
        or plain.endswith(("signature", "token", "secret", "password", "credential"))
    )
