"""Malformed files made of valid ones: damaged bytes, and content that lies in a container that is whole."""

from __future__ import annotations

import copy
import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from random import Random
from typing import Any

Mutation = Callable[[bytes, Random], bytes]

MARKER = "fuzz_marker"
"""The module that nothing may import, whatever a file says."""

_NUMBERS = (0, 1, -1, 2, 127, 128, 255, 256, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32, 2**40, 2**53, 2**62, 2**63)
_WORDS = (
    *("", " ", "../../escaped", "/etc/passwd", "none", "nan", "inf", "-inf", "1e999", "null", "\0", "\ud7ff", "ä€😀"),
    *(f"{MARKER}:go", f"{MARKER}:go:depth=2", "x" * 5000, "+" * 200, "((((((((", "{{7*7}}", "<script>", "%s%n", "'"),
    *("mlp:hidden=(99999999999,)", "fedavg:epochs=1000000000", "pruning:keep=0.5+" * 40 + "none", "a:b=c", "1" * 400),
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    *_NUMBERS,
    *_WORDS,
    0.5,
    -0.0,
    1e308,
    5e-324,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)


def damaged(content: bytes, random: Random) -> bytes:
    """Some bytes changed, moved, repeated or lost."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        random.choice(_DAMAGES)(data, random)
    return bytes(data)


def _flip(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set(data: bytearray, random: Random) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 10, 34, 39, 58, 127, 128, 255, random.randrange(256)))


def _number(data: bytearray, random: Random) -> None:
    form = random.choice(["<I", ">I", "<Q", ">Q", "<H", ">H"])
    packed = struct.pack(form, random.choice(_NUMBERS) % (1 << 8 * struct.calcsize(form)))
    at = random.randrange(len(data) + 1) if random.random() < 0.5 else random.randrange(min(64, len(data) + 1))
    data[at : at + len(packed)] = packed


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _drop(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.choice((1, 2, 8, 64))]


def _insert(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice((bytes(8), b"\xff" * 8, random.choice(_WORDS).encode("utf-8", "surrogatepass")))


def _repeat(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = data[at : at + random.choice((1, 16, 256))] * random.choice((1, 3, 40))


_DAMAGES = (_flip, _set, _number, _cut, _drop, _insert, _repeat)


def reworded(content: bytes, random: Random) -> bytes:
    """A text whose words, numbers or lines are others, or stand elsewhere."""
    lines = content.decode("utf-8", "replace").split("\n")
    at = random.randrange(len(lines))
    choice = random.randrange(4)
    if choice == 0:
        lines[at] = lines[at].replace(*_pair(lines[at], random))
    elif choice == 1:
        lines.insert(at, random.choice(lines))
    elif choice == 2:
        key, equals, _ = lines[at].partition("=")
        lines[at] = f"{key}{equals}{json.dumps(random.choice(_VALUES))}"
    else:
        lines[at] += random.choice((",", "=", "[", "]", '"', "'", "\t", ",,", *_WORDS))
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def _pair(line: str, random: Random) -> tuple[str, str]:
    words = [word for word in line.replace(",", " ").replace("=", " ").split() if word] or [line or " "]
    return random.choice(words), str(random.choice(_VALUES))


def relied(value: Any, random: Random) -> Any:
    """The same JSON with a value replaced, a key lost, renamed or added, or a list of another length."""
    changed = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 2, 3))):
        holder = _somewhere(changed, random)
        if isinstance(holder, dict):
            _change_table(holder, random)
        elif isinstance(holder, list):
            _change_list(holder, random)
        else:
            return _value(random)
    return changed


def _somewhere(value: Any, random: Random) -> Any:
    """A table or list in a value, at any depth."""
    here = value
    while isinstance(here, dict | list) and here:
        inner = [one for one in (here.values() if isinstance(here, dict) else here) if isinstance(one, dict | list)]
        if not inner or random.random() < 0.4:
            return here
        here = random.choice(inner)
    return here


def _value(random: Random) -> Any:
    return copy.deepcopy(random.choice(_VALUES))


def _change_table(holder: dict[str, Any], random: Random) -> None:
    key = random.choice(list(holder)) if holder else "x"
    choice = random.randrange(5)
    if choice == 0:
        holder.pop(key, None)
    elif choice == 1:
        holder[random.choice(_WORDS)] = _value(random)
    elif choice == 2:
        holder[key] = [copy.deepcopy(holder.get(key))] * random.choice((1, 2, 1000))
    else:
        holder[key] = _value(random)


def _change_list(holder: list[Any], random: Random) -> None:
    at = random.randrange(len(holder) + 1)
    choice = random.randrange(3)
    if choice == 0:
        del holder[at : at + 1]
    elif choice == 1:
        holder.insert(at, _value(random))
    else:
        holder[at : at + 1] = [_value(random)]


def resealed_json(content: bytes, random: Random) -> bytes:
    """A JSON document that lies."""
    return json.dumps(relied(json.loads(content), random)).encode()


def resealed_zip(content: bytes, random: Random) -> bytes:
    """An archive whose sums are right, and whose members are damaged, renamed, doubled or empty."""
    members = _members(content)
    name = random.choice(list(members))
    choice = random.randrange(6)
    if choice == 0:
        members[f"{random.choice(_WORDS)[:60]}.npy"] = members.pop(name)
    elif choice == 1:
        members[name] = members[random.choice(list(members))]
    elif choice == 2:
        members[name] = b""
    else:
        members[name] = damaged(members[name], random)
    method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return _zipped(members, method)


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {one.filename: archive.read(one) for one in archive.infolist()}


def _zipped(members: dict[str, bytes], method: int) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, member in members.items():
            archive.writestr(zipfile.ZipInfo(name or "empty"), member, method)
    return stream.getvalue()


def resealed_gzip(content: bytes, random: Random) -> bytes:
    """A packed file whose sum is right and whose content is damaged."""
    return gzip.compress(damaged(gzip.decompress(content), random), 1)


def resealed_safetensors(content: bytes, random: Random) -> bytes:
    """A header of the right length that lies about tensors or says other things."""
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    said = header.get("__metadata__", {})
    documents = [key for key, text in said.items() if text[:1] in "{["]
    if documents and random.random() < 0.7:
        key = random.choice(documents)
        said[key] = json.dumps(relied(json.loads(said[key]), random))
    else:
        header = relied(header, random)
    words = json.dumps(header).encode()
    return struct.pack("<Q", len(words)) + words + body
