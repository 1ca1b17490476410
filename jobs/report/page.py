"""The report as one HTML file: templates, filters, and everything that keeps it self-contained and harmless.

Texts come from logs and may be anything. Templates escape them; control characters are written out; data for the script
is packed so that no character of it means anything in HTML; and the page forbids itself every request and every script
and style but its own, which it names by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from jobs import console
from jobs.report.figures import label

_FOLDER = Path(__file__).parent
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


@cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finished,
    )
    made.filters |= {
        "count": lambda value: f"{value:,.0f}",
        "mean": lambda value: f"{value:,.1f}",
        "fixed": fixed,
        "signed": lambda value, digits=3: _minus(f"{value:+z.{digits}f}"),
        "percent": lambda share: f"{100 * share:.1f} %" if share < 0.9995 else "100 %",
        "size": console.size,
        "metric": label,
        "amount": amount,
    }
    return made


def stream(variables: Mapping[str, Any]) -> Iterator[str]:
    """Yield the page piece by piece; what is an iterator among the variables is used up on the way."""
    style, script = (_source(name) for name in ("report.css", "report.js"))
    hashes = {"style_hash": _digest(style), "script_hash": _digest(script)}
    template = _environment().get_template("report.html")
    yield from template.generate(**variables, **hashes, style=Markup(style), script=Markup(script))


def script_json(value: Any) -> Markup:
    """Return JSON that may stand in a script element, whatever strings it holds."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def visible(text: str) -> str:
    """Write out characters that a browser would drop, or that would turn the text's direction."""
    return _CONTROLS.sub(lambda found: _written(ord(found[0])), text)


def _written(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _finished(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def fixed(value: float | None, digits: int = 3) -> str:
    """Write a number with so many digits; a dash stands for none."""
    return "–" if value is None else _minus(f"{value:z.{digits}f}")


def amount(value: float | None) -> str:
    """Write a number that may be a share or a count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) > 1 else fixed(value)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _source(name: str) -> str:
    return (_FOLDER / "templates" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
