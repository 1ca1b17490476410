"""What all who talk to an endpoint of OpenAI's kind share: its address, its key, the connections, bounded answers."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator

from schemas.errors import ConfigError, TagloomError

PUBLIC = "https://api.openai.com/v1"
"""The address where neither the options nor the environment name one."""


def checked(address: str) -> str:
    """Return an address that is one, without anything secret in it.

    Raises:
        ValueError: It is none, or has more to it than scheme, host, port and path.
    """
    try:
        parts = urlsplit(address)
        host = re.fullmatch(r"[\w.:-]+", parts.hostname or "")
        whole = parts.scheme in ("http", "https") and host is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        whole = False
    if not whole:
        raise ValueError("an address looks like http://localhost:8000/v1")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("an address holds no user, password, query or fragment; keys come from the environment")
    return address


Address = Annotated[str, AfterValidator(checked)]
"""An address among options."""


def base_of(address: str | None) -> str:
    """Return the address without a slash at its end: the one given, else OPENAI_BASE_URL, else the public one.

    Raises:
        ConfigError: The one in the environment is not valid.
    """
    if address is None:
        try:
            address = checked(os.environ.get("OPENAI_BASE_URL") or PUBLIC)
        except ValueError as error:
            raise ConfigError(str(error), where="OPENAI_BASE_URL") from None
    return address.rstrip("/")


def key_of(variable: str, error: type[TagloomError]) -> str:
    """Return the key in an environment variable; empty where there is none.

    Raises:
        TagloomError: It cannot be sent; of the type given.
    """
    key = os.environ.get(variable, "").strip()
    if key and not re.fullmatch(r"[\x21-\x7e]+", key):
        raise error("the key holds characters that no key has", where=variable, remedy="Set it again, without quotes.")
    return key


def session(key: str, connections: int, timeout: float) -> Any:
    """Return an aiohttp session; made inside an event loop.

    Args:
        key: Sent with each request, unless it is empty.
        connections: Requests in flight at most; one more is for looking whether the endpoint lives.
        timeout: Seconds that a request may take.
    """
    import aiohttp

    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "tagloom"}
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections + 1),
        timeout=aiohttp.ClientTimeout(total=timeout),
        headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
        cookie_jar=aiohttp.DummyCookieJar(),
        raise_for_status=False,
    )


async def bounded(response: Any, limit: int) -> bytes | None:
    """Return the whole body of a response; None when it has more bytes than the limit."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > limit:
            return None
        parts.append(part)
    return b"".join(parts)
