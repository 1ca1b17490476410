"""What goes wrong with storage: which faults pass and are waited for, and what is said about the others."""

from __future__ import annotations

import errno
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines import meter
from schemas.errors import StoreError
from schemas.uris import shown

T = TypeVar("T")
log = logging.getLogger(__name__)

MISSING = "the file is missing"
"""What is said of a file that is not there (of its bucket something else is)."""


@dataclass(frozen=True)
class Patience:
    """How long storage that is away is waited for.

    Attributes:
        total: Seconds from the beginning of a call after which no further attempt begins.
        first: Seconds before the second attempt; each further wait is twice as long.
        longest: Seconds that no wait exceeds.
    """

    total: float = 120.0
    first: float = 0.2
    longest: float = 10.0


_LASTING = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
_CODES = frozenset(
    (
        "SlowDown",
        "RequestTimeout",
        "InternalError",
        "ServiceUnavailable",
        "ServerBusy",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "RequestLimitExceeded",
        "OperationAborted",
        "ConditionalRequestConflict",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
    )
)
_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN",
        "ETIMEDOUT",
        "ECONNRESET",
        "ECONNREFUSED",
        "ECONNABORTED",
        "EPIPE",
        "EHOSTUNREACH",
        "ENETUNREACH",
        "ENETDOWN",
        "ENETRESET",
        "EREMOTEIO",
        "ESTALE",
    )
    if hasattr(errno, name)
)
# By name, as most of the libraries are not there.
_PASSING = frozenset(
    (
        "HTTPClientError",
        "EndpointConnectionError",
        "ConnectionClosedError",
        "IncompleteRead",
        "IncompleteReadError",
        "ResponseStreamingError",
        "ResponseParserError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ServerDisconnectedError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
        "ChecksumError",
        "ConnectionError",
        "ReadTimeout",
        "ChunkedEncodingError",
        "ProxyError",
    )
)
_UNTRUSTED = frozenset(("SSLError", "ClientSSLError", "SSLCertVerificationError"))
_KEYLESS = frozenset(
    (
        "NoCredentialsError",
        "PartialCredentialsError",
        "ProfileNotFound",
        "TokenRetrievalError",
        "SSOTokenLoadError",
        "UnauthorizedSSOTokenError",
        "DefaultCredentialsError",
        "RefreshError",
        "ClientAuthenticationError",
    )
)
_BUCKETLESS = frozenset(("NoSuchBucket", "ContainerNotFound", "BucketNotFound"))
_UNKNOWN_HOST = re.compile("Name or service not known|nodename nor servname|No address associated with hostname")
_SECRET = re.compile(r"(?i)\b(sig|signature|token|accountkey|x-amz-[a-z-]+)=[^&\s'\"]+")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it came from."""
    seen: BaseException | None = error
    for _ in range(8):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _kinds(error: BaseException) -> set[str]:
    return {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}


def _told(error: BaseException) -> tuple[set[int], set[str]]:
    """Return the HTTP status codes and the stores' own codes that an error carries."""
    statuses: set[int] = set()
    codes: set[str] = set()
    for one in _chain(error):
        response: Any = getattr(one, "response", None)
        if isinstance(response, dict):
            statuses.add(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
            codes.add(str(response.get("Error", {}).get("Code", "")))
        for name in ("status_code", "status", "code"):
            value = getattr(one, name, None)
            if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()):
                statuses.add(int(value))
        codes.add(str(getattr(one, "error_code", "")))
    return statuses, codes


def passes(error: BaseException) -> bool:
    """Tell whether a fault of remote storage passes by itself: time-outs, lost connections, throttling, 5xx."""
    if isinstance(error, (*_LASTING, StoreError)):
        return False
    kinds = _kinds(error)
    if kinds & _UNTRUSTED or kinds & _KEYLESS or any(_UNKNOWN_HOST.search(str(one)) for one in _chain(error)):
        return False
    statuses, codes = _told(error)
    if statuses & _STATUSES or codes & _CODES or kinds & _PASSING:
        return True
    return any(
        isinstance(one, TimeoutError | ConnectionError) or (isinstance(one, OSError) and one.errno in _ERRNOS)
        for one in _chain(error)
    )


def patiently(act: Callable[[], T], where: str, patience: Patience) -> T:
    """Do something with remote storage, again and again while its faults are such that pass.

    Every further attempt is logged with one line and counted (`pipelines.meter.Cost.retries`).

    Raises:
        Exception: What the last attempt raised.
    """
    began, wait, attempt = time.monotonic(), patience.first, 1
    while True:
        try:
            return act()
        except Exception as error:
            if not passes(error) or time.monotonic() - began + wait > patience.total:
                raise
            log.warning("%s: %s; attempt %d in %.1f s", shown(where), _text(error), attempt + 1, wait)
        meter.retried()
        time.sleep(wait)
        wait, attempt = min(2 * wait, patience.longest), attempt + 1


def _text(error: BaseException) -> str:
    """Return one line about an error, without what a URL in it may give away."""
    line = " ".join(str(error).split()) or type(error).__name__
    return shown(_SECRET.sub(r"\1=...", line))


def explained(error: Exception, what: str, where: str, *, remote: bool) -> StoreError:
    """Return what is to be said about a fault of storage.

    Args:
        error: What was raised.
        what: Such as ``cannot be read``.
        where: The file.
        remote: Whether the file lies on an object store.
    """
    kinds, (statuses, codes) = _kinds(error), _told(error)
    text = _text(error)
    number = getattr(error, "errno", None)
    placeless = remote and what == "cannot be written" and isinstance(error, FileNotFoundError)
    if placeless or codes & _BUCKETLESS or "specified bucket does not exist" in text:
        return StoreError("the bucket does not exist", where=where, remedy="Make it, or mend the URI.")
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return StoreError(MISSING if what == "cannot be read" else f"{what}: {MISSING}", where=where)
    if kinds & _KEYLESS:
        return StoreError(
            f"{what}: no credentials that hold ({text})",
            where=where,
            remedy="Give them by the usual means of the store, such as AWS_PROFILE, GOOGLE_APPLICATION_CREDENTIALS or "
            "AZURE_STORAGE_ACCOUNT_NAME (docs/storage.md).",
        )
    if remote and (isinstance(error, PermissionError) or statuses & {401, 403} or text.startswith("Forbidden")):
        return StoreError(
            f"{what}: the store refuses these credentials ({text})",
            where=where,
            remedy="They must be valid and allow to read, write, list and remove below the corpus (docs/storage.md).",
        )
    if number in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(
            f"{what}: {'the disk is full' if number == errno.ENOSPC else 'the quota is used up'}: {text}",
            where=where,
            remedy="Free space, then run the same command again: finished parts stay, nothing half-written does.",
        )
    if not remote and number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StoreError(
            f"{what}: no permission: {text}",
            where=where,
            remedy="Mend the permissions, then run the same command again: finished parts stay.",
        )
    if remote and passes(error):
        return StoreError(
            f"{what}: the store does not answer, or only with faults ({text})",
            where=where,
            remedy="Run the same command again when it does: finished parts stay.",
        )
    return StoreError(f"{what}: {text}", where=where, remedy="Mend that, then run the same command again.")
