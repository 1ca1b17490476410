"""What object stores offer beyond fsspec's common ground: one request a question, and puts under a condition.

Every class has the same methods; `remote` chooses. None tries again by itself where that can be helped:
`pipelines.storage_faults.patiently` does, so that attempts are counted once and logged.
"""

from __future__ import annotations

import io
import json
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import fsspec
from fsspec.asyn import sync

SETTLING = 1.0
"""Seconds in which two writers notice each other, where a store knows no condition."""

_local_swaps = threading.Lock()


def filesystem(uri: str) -> tuple[Any, str]:
    """Return the fsspec file system and path of a URI, so set that it does not try again by itself (S3).

    Raises:
        ImportError: The library for this kind of storage is not installed.
        ValueError: fsspec does not know the kind.
    """
    if uri.partition("://")[0] not in ("s3", "s3a"):
        found: tuple[Any, str] = fsspec.core.url_to_fs(uri)
        return found
    given = fsspec.config.conf.get("s3", {}).get("config_kwargs", {})
    once = {**given, "retries": {"total_max_attempts": 1}}
    fs, path = fsspec.core.url_to_fs(uri, config_kwargs=once, use_listings_cache=False)
    fs.retries = 1
    return fs, path


@dataclass(frozen=True)
class Seen:
    """A file as it is now.

    Attributes:
        data: Its bytes.
        version: What the store calls this state of it; None where it has no name for it.
    """

    data: bytes
    version: str | None


class Remote:
    """Any fsspec file system. A put under a condition is put, left to settle, and read back."""

    def __init__(self, fs: Any) -> None:
        """Speak to a file system."""
        self.fs = fs

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or None where there is none."""
        self.fs.invalidate_cache()  # workers write, and listings of before do not know
        try:
            info = self.fs.info(path)
        except FileNotFoundError:
            return None
        return int(info["size"] or 0) if info["type"] == "file" else None

    def get(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return bytes(self.fs.cat_file(path))

    def span(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from `start` up to `end`, which are within it."""
        return bytes(self.fs.cat_file(path, start=start, end=end))

    def put(self, path: str, data: bytes) -> None:
        """Write a file, whole or not at all."""
        self.fs.pipe_file(path, data)

    def listed(self, path: str) -> dict[str, int]:
        """Return path -> size in bytes of every file below a folder that the store lists now."""
        self.fs.invalidate_cache()
        try:
            found = self.fs.find(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        # A file of that very name is not below it; stores may hold both.
        return {
            name: int(info["size"] or 0) for name, info in found.items() if name != path and info["type"] != "directory"
        }

    def seen(self, path: str) -> Seen | None:
        """Return a file as it is, or None where there is none."""
        try:
            return Seen(self.get(path), None)
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes, before: str | None) -> bool:
        """Put a file if its version is still `before` (None: if there is none); False where it is not."""
        self.put(path, data)
        time.sleep(SETTLING)
        return self.get(path) == data

    def age(self, path: str) -> float | None:
        """Return the seconds since a file was written by the store's own clock, or None where it does not tell."""
        return None

    def placed(self, path: str) -> bool:
        """Tell whether the bucket that a path lies in is there; True where that is not known."""
        return True

    def sweep_uploads(self, path: str, age: float, dry_run: bool) -> int:
        """End unfinished uploads in pieces below a folder that are so many seconds old; return their number."""
        return 0


class Memory(Remote):
    """``memory://``: files of this process."""

    def swap(self, path: str, data: bytes, before: str | None) -> bool:
        """As `Remote.swap`; versions are contents."""
        with _local_swaps:
            now = self.seen(path)
            if (now and now.version) != before:
                return False
            self.put(path, data)
            return True

    def seen(self, path: str) -> Seen | None:
        """As `Remote.seen`."""
        try:
            data = self.get(path)
        except FileNotFoundError:
            return None
        return Seen(data, data.hex())


class S3(Remote):
    """Amazon S3 and what speaks like it: conditions by ETag (``If-Match``, ``If-None-Match``)."""

    def _key(self, path: str) -> dict[str, str]:
        bucket, key, _ = self.fs.split_path(path)
        return {"Bucket": bucket, "Key": key}

    def size(self, path: str) -> int | None:
        """As `Remote.size`, with one HEAD and never a listing."""
        try:
            return int(self.fs.call_s3("head_object", **self._key(path))["ContentLength"])
        except FileNotFoundError:
            return None

    def listed(self, path: str) -> dict[str, int]:
        """As `Remote.listed`, with one request a thousand files."""
        place = self._key(path.rstrip("/") + "/")
        found: dict[str, int] = {}
        more: dict[str, str] = {}
        while True:
            told = self.fs.call_s3("list_objects_v2", Bucket=place["Bucket"], Prefix=place["Key"], **more)
            for one in told.get("Contents", []):
                if not one["Key"].endswith("/"):  # what some tools put for a folder
                    found[f"{place['Bucket']}/{one['Key']}"] = int(one["Size"])
            if not told.get("IsTruncated"):
                return found
            more = {"ContinuationToken": told["NextContinuationToken"]}

    def get(self, path: str) -> bytes:
        """As `Remote.get`, with one GET."""
        return self._get(path).data

    def seen(self, path: str) -> Seen | None:
        """As `Remote.seen`, with one GET."""
        try:
            return self._get(path)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error.__cause__):
                raise
            return None

    def _get(self, path: str) -> Seen:
        async def whole() -> Seen:
            response = await self.fs._call_s3("get_object", **self._key(path))
            async with response["Body"] as body:
                return Seen(await body.read(), response["ETag"])

        found: Seen = sync(self.fs.loop, whole)
        return found

    def swap(self, path: str, data: bytes, before: str | None) -> bool:
        """As `Remote.swap`, with one PUT."""
        condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": before}
        try:
            self.fs.call_s3("put_object", **self._key(path), Body=data, **condition)
        except FileNotFoundError as error:  # what a condition on a file that is gone gives
            if "NoSuchBucket" in str(error.__cause__):
                raise
            return False
        except OSError as error:
            response = getattr(error.__cause__, "response", {})
            if response.get("Error", {}).get("Code") in ("PreconditionFailed", "412"):
                return False
            raise
        return True

    def age(self, path: str) -> float | None:
        """As `Remote.age`."""
        try:
            told = self.fs.call_s3("head_object", **self._key(path))
        except FileNotFoundError:
            return None
        now = parsedate_to_datetime(told["ResponseMetadata"]["HTTPHeaders"]["date"])
        return float((now - told["LastModified"]).total_seconds())

    def placed(self, path: str) -> bool:
        """As `Remote.placed`."""
        try:
            self.fs.call_s3("head_bucket", Bucket=self._key(path)["Bucket"])
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        return True

    def sweep_uploads(self, path: str, age: float, dry_run: bool) -> int:
        """As `Remote.sweep_uploads`."""
        place = self._key(path.rstrip("/") + "/")
        more: dict[str, str] = {}
        ended = 0
        while True:
            told = self.fs.call_s3("list_multipart_uploads", Bucket=place["Bucket"], Prefix=place["Key"], **more)
            now = parsedate_to_datetime(told["ResponseMetadata"]["HTTPHeaders"]["date"])
            for one in told.get("Uploads", []):
                if one["Key"].startswith(place["Key"]) and (now - one["Initiated"]).total_seconds() >= age:
                    ended += 1
                    if not dry_run:
                        self.fs.abort_mpu(place["Bucket"], one["Key"], one["UploadId"])
            if not told.get("IsTruncated"):
                return ended
            more = {"KeyMarker": told["NextKeyMarker"], "UploadIdMarker": told["NextUploadIdMarker"]}


class Google(Remote):
    """Google Cloud Storage: conditions by generation."""

    def seen(self, path: str) -> Seen | None:
        """As `Remote.seen`."""
        self.fs.invalidate_cache()
        try:
            generation = str(self.fs.info(path)["generation"])
            return Seen(bytes(self.fs.cat_file(path, generation=generation)), generation)
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes, before: str | None) -> bool:
        """As `Remote.swap`."""
        bucket, key, _ = self.fs.split_path(path)
        place = f"{self.fs._location}/upload/storage/v1/b/{bucket}/o"
        condition = {"uploadType": "media", "name": key, "ifGenerationMatch": before or "0"}
        try:
            self.fs.call("POST", place, data=io.BytesIO(data), **condition)
        except FileExistsError:
            return False
        except FileNotFoundError:
            if before is None:
                raise
            return False
        finally:
            self.fs.invalidate_cache()
        return True

    def age(self, path: str) -> float | None:
        """As `Remote.age`."""
        bucket, key, _ = self.fs.split_path(path)
        try:
            headers, told = self.fs.call("GET", "b/{}/o/{}", bucket, key)
        except FileNotFoundError:
            return None
        written = datetime.fromisoformat(json.loads(told)["updated"])
        return (parsedate_to_datetime(headers["Date"]) - written).total_seconds()


class Azure(Remote):
    """Azure Blob Storage: conditions by ETag."""

    def seen(self, path: str) -> Seen | None:
        """As `Remote.seen`; the version is that of before the bytes, so a change between the two is noticed."""
        self.fs.invalidate_cache()
        try:
            version = str(self.fs.info(path, refresh=True)["etag"])
            return Seen(bytes(self.fs.cat_file(path)), version)
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes, before: str | None) -> bool:
        """As `Remote.swap`."""
        from azure.core import MatchConditions  # type: ignore[import-not-found]
        from azure.core.exceptions import (  # type: ignore[import-not-found]
            ResourceModifiedError,
            ResourceNotFoundError,
        )

        try:
            if before is None:
                self.fs.pipe_file(path, data, overwrite=False)
            else:
                self.fs.pipe_file(path, data, etag=before, match_condition=MatchConditions.IfNotModified)
        except (FileExistsError, ResourceModifiedError):
            return False
        except ResourceNotFoundError:
            if before is None:
                raise
            return False
        return True


_KINDS: dict[str, type[Remote]] = {
    "s3": S3,
    "s3a": S3,
    "gs": Google,
    "gcs": Google,
    "abfs": Azure,
    "abfss": Azure,
    "az": Azure,
    "memory": Memory,
}


def remote(fs: Any) -> Remote:
    """Return how to speak to a file system."""
    names = fs.protocol if isinstance(fs.protocol, tuple) else (fs.protocol,)
    return next((_KINDS[name] for name in names if name in _KINDS), Remote)(fs)
