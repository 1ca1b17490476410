"""Studies: what a model is asked about questions, rather than about conversations.

Each module of this package whose name has no leading underscore is a study and has the names of
`transforms.tasks.Asked`. What is made of the results is the business of whoever asks.
"""

from __future__ import annotations

from schemas.registry import Registry
from transforms.tasks import Asked

STUDIES: Registry[Asked] = Registry(__name__, "study", "Studies")
names, load = STUDIES.names, STUDIES.load
