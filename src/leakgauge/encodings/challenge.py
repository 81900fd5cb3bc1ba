"""A challenge for attackers: encodings to publish, and the secret to keep."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from leakgauge.encodings.keys import KeySource
from leakgauge.encodings.schemes import Scheme, Secret, encrypt, mix_rows, shuffle
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, writable_folder, write_tensors, write_text
from leakgauge.protocol.encoding import CENTRE, EncodedSet, EncodingObservation, Mixing
from leakgauge.stored import check_keys
from leakgauge.types import Batch
from leakgauge.version import VERSION

ENCODINGS, PUBLIC, MANIFEST, SECRET = (
    "encodings.safetensors",
    "public.safetensors",
    "challenge.json",
    "secret.safetensors",
)

_MANIFEST: Mapping[str, Any] = {
    **dict.fromkeys(("k", "private_per_encoding", "private_images", "public_images"), int),
    "signed": bool,
    "digest": str,
}
"""What an attacker needs of it."""


def make_challenge(
    folder: Path,
    secret_folder: Path,
    scheme: Scheme,
    private: Batch,
    *,
    classes: int,
    copies: int,
    keys: KeySource,
    public: Tensor | None = None,
) -> dict[str, Any]:
    """Write encodings, labels and a manifest to ``folder``, the rest to ``secret_folder``; returns the manifest."""
    _check_apart(folder, secret_folder)
    encoded, secret = shuffle(
        *encrypt(scheme, private, classes=classes, public=public, copies=copies, keys=keys), keys=keys
    )
    manifest = {
        "scheme": repr(scheme),
        "k": scheme.k,
        "private_per_encoding": scheme.private_per_encoding,
        "signed": scheme.signed,
        "private_images": len(private),
        "encodings": len(encoded),
        "encodings_per_image": copies,
        "classes": classes,
        "image_shape": list(encoded.images.shape[1:]),
        "public_images": 0 if public is None else len(public),
        "secure_keys": keys.secure,
        "digest": digest(encoded),
        "version": VERSION,
    }
    for where in (folder, secret_folder):
        writable_folder(where)
    os.chmod(secret_folder, 0o700)
    flipped = secret.flipped.to(torch.uint8)
    write_tensors(
        secret_folder / SECRET,
        {
            "images": private.inputs,
            "labels": private.labels,
            "coefficients": secret.mixing.coefficients,
            "indices": secret.mixing.indices,
            "flipped": flipped,
        },
        {"digest": str(manifest["digest"])},
    )
    write_tensors(folder / ENCODINGS, {"images": encoded.images, "labels": encoded.labels})
    if public is not None:
        write_tensors(folder / PUBLIC, {"images": public})
    # Last: a folder with a manifest is whole.
    write_text(folder / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    return manifest


def read_challenge(folder: Path) -> EncodingObservation:
    """What an attacker sees of a challenge."""
    manifest = _manifest(folder)
    tensors, _ = read_tensors(folder / ENCODINGS)
    try:
        encoded = EncodedSet(tensors["images"], tensors["labels"])
    except KeyError as error:
        raise InvalidFile(f"{folder / ENCODINGS} holds no {error}; make the challenge again.") from error
    if digest(encoded) != manifest["digest"]:
        raise InvalidFile(f"The encodings in {folder} are not those of its {MANIFEST}; make the challenge again.")
    return EncodingObservation(
        encoded=encoded,
        k=int(manifest["k"]),
        private_per_encoding=int(manifest["private_per_encoding"]),
        signed=bool(manifest["signed"]),
        num_private=int(manifest["private_images"]),
        public=read_tensors(folder / PUBLIC)[0]["images"] if manifest["public_images"] else None,
    )


def read_published(source: Path, scheme: Scheme) -> EncodingObservation:
    """What an attacker sees of a challenge's folder, or of a file of encodings that were made by a scheme."""
    if source.is_dir():
        return read_challenge(source)
    tensors, facts = read_tensors(source)
    if not {"images", "labels"} <= set(tensors):
        raise InvalidFile(f"{source} holds no `images` with `labels`; write it with `leakgauge instahide encrypt`.")
    if facts.get("scheme", repr(scheme)) != repr(scheme):
        raise InvalidCase(f"{source} was encrypted by {facts['scheme']}, not by {scheme}; name that with --scheme.")
    encoded = EncodedSet(tensors["images"], tensors["labels"])
    return EncodingObservation(encoded, scheme.k, scheme.private_per_encoding, scheme.signed)


def read_secret(folder: Path, of: EncodedSet | None = None) -> tuple[Batch, Secret]:
    """The private images of a challenge, and the key that they were encrypted by; ``of`` must be what it published."""
    tensors, facts = read_tensors(folder / SECRET)
    if not {"images", "labels", "coefficients", "indices", "flipped"} <= set(tensors):
        raise InvalidFile(f"{folder / SECRET} is no secret of a challenge; make the challenge again.")
    if of is not None and facts.get("digest") != digest(of):
        raise InvalidCase(f"{folder / SECRET} is the secret of other encodings; name that of these with --secret.")
    flipped = tensors["flipped"].bool()
    mixing = Mixing(tensors["coefficients"], tensors["indices"], bool(flipped.any()))
    return Batch(tensors["images"], tensors["labels"]), Secret(mixing, flipped)


def private_part(private: Tensor, mixing: Mixing, own: int) -> Tensor:
    """The private images of each encoding, mixed in their shares alone."""
    return Mixing(private_shares(mixing, own), mixing.indices[:, :own]).mix(private)


def private_shares(mixing: Mixing, own: int) -> Tensor:
    """How the ``own`` private images of each encoding share their part of it."""
    return mixing.coefficients[:, :own] / mixing.coefficients[:, :own].sum(dim=1, keepdim=True)


def encrypt_others(
    observation: EncodingObservation, secret: Secret, others: Tensor, public: Tensor | None
) -> EncodedSet:
    """What the same key makes of as many other images, in place of the private ones: encodings for a null.

    Every key is handed on to the next encoding, so that neither public images nor masks agree with what was published.
    """
    mixed = mix_rows(others if public is None else torch.cat([others, public.to(others)]), secret.mixing)
    mixed = mixed.clamp(0, 2 * CENTRE)
    masked = torch.where(secret.flipped, 2 * CENTRE - mixed, mixed)
    return EncodedSet(masked.roll(1, dims=0), observation.encoded.labels.roll(1, dims=0))


def digest(encoded: EncodedSet) -> str:
    """What names a challenge: a hash of its encodings and labels."""
    found = hashlib.blake2b(digest_size=16)
    for tensor in (encoded.images, encoded.labels):
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def _check_apart(folder: Path, secret_folder: Path) -> None:
    public, secret = folder.resolve(), secret_folder.resolve()
    if public == secret or public in secret.parents or secret in public.parents:
        raise InvalidCase(
            f"The secret in {secret_folder} would be published with {folder}; keep it in a folder outside."
        )


def _manifest(folder: Path) -> dict[str, Any]:
    try:
        said = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        missing = [name for name in _MANIFEST if name not in said]
        if missing:
            raise ValueError(f"no {missing[0]}")
        check_keys(said, _MANIFEST)
        return dict(said)
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise InvalidFile(f"{folder} holds no readable {MANIFEST}; name the folder of a challenge.") from error
