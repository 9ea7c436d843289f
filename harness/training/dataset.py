"""The data set of a training run: files of samples, each with its sha256, written once.

DATASET.json holds the version, the counts and the sha256 of every shard file; its own sha256 is
the digest of the data set. A shard is ``shard-0000.safetensors`` with tokens, int32[n, context +
1], and scale, float32[n], what each sample counts in the loss. A sample's id is its place in all
shards, so id // per_shard is its shard. The last `reserve` shards are kept back for replacements.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from rackproof.harness.errors import DrillError
from rackproof.harness.training import chance
from rackproof.harness.training.plan import Plan, Samples

INDEX = "DATASET.json"
VERSION = "rackproof.dataset/1"
LARGEST = 1 << 24  # bytes of DATASET.json: a hundred thousand shards

Rows = tuple[NDArray[np.int32], NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Counts:
    """How many shards, samples in each, and shards of those in reserve; tokens of a sample."""

    shards: int
    per_shard: int
    reserve: int
    length: int
    vocabulary: int

    def __post_init__(self) -> None:
        """Raise DrillError for counts of which no data set can be made."""
        values = asdict(self).values()
        if any(not isinstance(each, int) or isinstance(each, bool) for each in values):
            msg = "the counts of a data set are whole numbers"
            raise DrillError(msg)
        least = self.shards > self.reserve >= 0 and self.per_shard > 0
        if not least or self.length < 2 or self.vocabulary < 1:  # noqa: PLR2004  a token and its next
            msg = f"a data set of {self} cannot be"
            raise DrillError(msg)

    @property
    def main(self) -> int:
        """Samples of an epoch: those that are not in reserve. Their ids are 0 … main - 1."""
        return (self.shards - self.reserve) * self.per_shard

    @property
    def samples(self) -> int:
        """All samples, those in reserve last."""
        return self.shards * self.per_shard


def poisoned_sample(plan: Plan, shard: int) -> int:
    """Return the id of the sample that is NaN where `shard` is poisoned."""
    count = plan.samples.per_shard
    drawn = chance.words(chance.CONTENT, plan.seed, (shard, 1, 0), 1)
    return shard * count + int(drawn[0]) % count


class DataSet:
    """A data set that was read and verified; all of it is in memory."""

    __slots__ = ("_scale", "_tokens", "counts", "digest")

    def __init__(self, counts: Counts, digest: str, shards: Sequence[Rows]) -> None:
        self.counts, self.digest = counts, digest
        self._tokens = np.concatenate([tokens for tokens, _ in shards])
        self._scale = np.concatenate([scale for _, scale in shards])

    @classmethod
    def write(cls, folder: Path, plan: Plan) -> "DataSet":
        """Write the data set of `plan` into `folder`, and return it.

        Where the same one is there already it is verified and kept; DrillError where `folder` holds
        anything else, or cannot be written.
        """
        counts = _counts(plan)
        files = [_shard(plan, counts, number) for number in range(counts.shards)]
        index = _index(counts, [hashlib.sha256(body).hexdigest() for body in files])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / INDEX).exists():
                return cls._same(folder, index)
            if any(folder.iterdir()):
                msg = f"{folder} holds other files; a data set wants a folder of its own"
                raise DrillError(msg)
            for number, body in enumerate(files):
                (folder / _name(number)).write_bytes(body)
            draft = folder / f".{INDEX}.{os.getpid()}"
            draft.write_bytes(index)
            draft.rename(folder / INDEX)
        except OSError as error:
            msg = f"the data set cannot be written: {error}"
            raise DrillError(msg) from error
        return cls.open(folder)

    @classmethod
    def _same(cls, folder: Path, index: bytes) -> "DataSet":
        found = cls.open(folder)
        if found.digest != hashlib.sha256(index).hexdigest():
            msg = f"{folder} holds the data set of another plan"
            raise DrillError(msg)
        return found

    @classmethod
    def open(cls, folder: Path) -> "DataSet":
        """Return the data set in `folder`; DrillError where a file is not what DATASET.json says.

        The names of files are never taken from DATASET.json.
        """
        try:
            with (folder / INDEX).open("rb") as file:
                text = file.read(LARGEST)
            counts, hashes = _read_index(text)
            shards = [_read_shard(folder, n, sha, counts) for n, sha in enumerate(hashes)]
        except OSError as error:
            msg = f"the data set cannot be read: {error}"
            raise DrillError(msg) from error
        return cls(counts, hashlib.sha256(text).hexdigest(), shards)

    def rows(self, ids: Sequence[int]) -> Rows:
        """Return tokens, int32[n, context + 1], and scale, float32[n], of n samples."""
        places = np.asarray(ids, np.int64)
        if places.size and not 0 <= places.min() <= places.max() < self.counts.samples:
            msg = f"a sample outside 0 … {self.counts.samples - 1} was asked for"
            raise DrillError(msg)
        return self._tokens[places], self._scale[places]

    def shard_of(self, sample: int) -> int:
        """Return the shard in which a sample lies."""
        return sample // self.counts.per_shard

    def broken(self, ids: Iterable[int]) -> tuple[int, ...]:
        """Return the shards, in order, of those samples whose scale is not finite."""
        found = {self.shard_of(each) for each in ids if not math.isfinite(self._scale[each])}
        return tuple(sorted(found))


def _counts(plan: Plan) -> Counts:
    samples: Samples = plan.samples
    length = plan.shape.context + 1
    counts = Counts(
        samples.shards, samples.per_shard, samples.reserve, length, plan.shape.vocabulary
    )
    if any(not 0 <= shard < counts.shards for shard in samples.poisoned):
        msg = f"poisoned shards {samples.poisoned}: there are {counts.shards}, counted from 0"
        raise DrillError(msg)
    return counts


def _name(number: int) -> str:
    return f"shard-{number:04d}.safetensors"


def _shard(plan: Plan, counts: Counts, number: int) -> bytes:
    """Return a shard file: rows that count upwards by a fixed stride, with an eighth of noise."""
    rows, length, kinds = counts.per_shard, counts.length, counts.vocabulary
    seed, place = plan.seed, (number, 0, 0)
    drawn = chance.words(chance.CONTENT, seed, place, rows * (length + 3)).reshape(rows, -1)
    start, stride, weight = (drawn[:, [at]] % np.uint64(1 << 20) for at in range(3))
    noise = drawn[:, 3:] >> np.uint64(8)
    along = np.arange(length, dtype=np.uint64)
    tokens = (start + (1 + stride % np.uint64(5)) * along) % np.uint64(kinds)
    tokens = np.where(drawn[:, 3:] % np.uint64(8) == 0, noise % np.uint64(kinds), tokens)
    scale = (0.5 + (weight[:, 0] % np.uint64(256)) / 256).astype("<f4")
    if number in plan.samples.poisoned:
        scale[poisoned_sample(plan, number) % rows] = np.nan
    tensors = {"tokens": np.ascontiguousarray(tokens, "<i4"), "scale": scale}
    return bytes(save(tensors))


def _index(counts: Counts, hashes: Sequence[str]) -> bytes:
    body = {"version": VERSION, **asdict(counts), "sha256": list(hashes)}
    return json.dumps(body, sort_keys=True, indent=1).encode()


def _read_index(text: bytes) -> tuple[Counts, list[str]]:
    """Return counts and hashes of DATASET.json; DrillError for anything that is none."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{INDEX} is no JSON"
        raise DrillError(msg) from error
    if not isinstance(body, Mapping) or body.get("version") != VERSION:
        msg = f"{INDEX} is not of version {VERSION}"
        raise DrillError(msg)
    counts = Counts(*(body.get(name) for name in Counts.__slots__))  # type: ignore[arg-type]
    hashes = body.get("sha256")
    if not isinstance(hashes, list) or len(hashes) != counts.shards:
        msg = f"{INDEX} holds no sha256 for each of {counts.shards} shards"
        raise DrillError(msg)
    return counts, hashes


def _read_shard(folder: Path, number: int, sha: Any, counts: Counts) -> Rows:
    """Return tokens and scale of a shard file that verifies."""
    body = (folder / _name(number)).read_bytes()
    if hashlib.sha256(body).hexdigest() != sha:
        msg = f"{_name(number)} is damaged: its sha256 is not that of {INDEX}"
        raise DrillError(msg)
    try:
        tensors = load(body)
        tokens, scale = tensors["tokens"], tensors["scale"]
    except (SafetensorError, KeyError, ValueError) as error:
        msg = f"{_name(number)} holds no tokens and scale ({error})"
        raise DrillError(msg) from error
    fits = tokens.shape == (counts.per_shard, counts.length) and scale.shape == tokens.shape[:1]
    if not fits or tokens.dtype != np.int32 or scale.dtype != np.float32:
        msg = f"{_name(number)} is not of the shape that {INDEX} says"
        raise DrillError(msg)
    if tokens.min() < 0 or tokens.max() >= counts.vocabulary:
        msg = f"{_name(number)} holds tokens outside the vocabulary"
        raise DrillError(msg)
    return tokens, scale
