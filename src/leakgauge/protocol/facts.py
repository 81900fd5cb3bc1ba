"""What an attacker is told, one typed line after the other; words are made of it only where it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Subject(Enum):
    """What a line of the ledger is about; the value is the name it is shown by."""

    MALICIOUS_SERVER = "server"
    """What a server did to the model that it sent; without this line it sent the honest one."""
    MODEL = "model"
    UPDATE = "update"
    INPUT_SPACE = "input space"
    BATCH_SIZE = "batch size"
    LABELS = "labels"
    LOCAL_HYPERPARAMETERS = "local hyper-parameters"
    DEFENCE = "defence"
    BATCH_NORM = "BatchNorm statistics"
    AUXILIARY = "auxiliary data"
    MIXING = "mixing"
    REST = "rest of the batch"
    CANDIDATES = "candidates"

    ENCODINGS = "Encodings"
    ENCODING_LABELS = "Labels of encodings"
    NUM_PRIVATE = "Number of private images"
    CLASS_COUNTS = "Images of each class"
    PUBLIC_IMAGES = "Public images"
    SIMILAR_IMAGES = "Images of the same kind"
    ALIGNMENT = "Alignment"
    KEYS = "Keys"


@dataclass(frozen=True)
class Fact:
    """One line of the ledger. ``about`` names whom the detail is about, such as the defence."""

    subject: Subject
    disclosed: bool
    detail: str
    about: str = ""

    @property
    def name(self) -> str:
        return self.subject.value

    @property
    def words(self) -> str:
        """The detail as it is shown.

        >>> Fact(Subject.DEFENCE, False, "hidden", about="pruning").words
        'pruning: hidden'
        """
        about = "MALICIOUS" if self.subject is Subject.MALICIOUS_SERVER else self.about
        return f"{about}: {self.detail}" if about else self.detail

    def to_dict(self) -> dict[str, Any]:
        """As it is shown, for a file that others read."""
        return {"name": self.name, "disclosed": self.disclosed, "detail": self.words}
