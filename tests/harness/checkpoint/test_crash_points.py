"""Every operation of a commit is a point where the machine dies, and forgets what was not synced.

A Recorder does the operations for real and writes them down. A Disk goes through them again up to
one of them, and knows for each file what it holds and what of it is synced, and for each directory
which names were given and are not synced. After a crash, any of the unsynced may be there and any
may not. All such disks are laid out and read, or a sample where there are very many.
"""

import errno
import itertools
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rackproof.harness.checkpoint import restore, verify
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError

MOST = 48  # disks of one crash point, beyond which a sample is taken


class Recorder(Files):
    """Does everything, and writes it down; what is in `lies` is reported as done and is not."""

    def __init__(self, lies=frozenset()):
        self.log, self.lies, self.open = [], lies, {}

    def mkdir(self, path):
        super().mkdir(path)
        self.log.append(("mkdir", path))

    def create(self, path):
        descriptor = super().create(path)
        self.open[descriptor] = path
        self.log.append(("create", path))
        return descriptor

    def write(self, descriptor, data):
        super().write(descriptor, data)
        self.log.append(("write", self.open[descriptor], bytes(data)))

    def fsync(self, descriptor):
        self.log.append(("fsync", self.open[descriptor]))

    def rename(self, old, new):
        super().rename(old, new)
        self.log.append(("rename", old, new))

    def fsync_dir(self, path):
        self.log.append(("fsync_dir", path))

    def unlink(self, path):
        super().unlink(path)
        self.log.append(("unlink", path))

    def rmdir(self, path):
        super().rmdir(path)
        self.log.append(("rmdir", path))

    def disk(self, operations):
        """Return the Disk after so many operations."""
        disk = Disk()
        for operation in self.log[:operations]:
            if operation[0] not in self.lies:
                getattr(disk, operation[0])(*operation[1:])
        return disk


@dataclass(eq=False)
class File:
    now: bytes = b""
    synced: bytes = b""

    def states(self):
        """What it may hold after a crash: nothing new, all, a part, or zeros in its place."""
        new = len(self.now) - len(self.synced)
        torn = self.now[: len(self.synced) + new // 2]
        return list(dict.fromkeys([self.synced, self.now, torn, self.synced + bytes(new)]))


@dataclass(eq=False)
class Folder:
    now: dict = field(default_factory=dict)
    synced: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)

    def change(self, *operation):
        _apply(self.now, operation)
        self.pending.append(operation)

    def states(self):
        """The names that it may hold after a crash: those synced, and any of the changes since."""
        found = []
        for kept in itertools.product((False, True), repeat=len(self.pending)):
            names = dict(self.synced)
            for operation in itertools.compress(self.pending, kept):
                _apply(names, operation)
            found.append(names)
        return found


def _apply(names, operation):
    what, name, *rest = operation
    if what == "link":
        names[name] = rest[0]
    elif what == "unlink":
        names.pop(name, None)
    else:
        new, node = rest
        if names.get(name) is node:
            del names[name]
        names[new] = node


class Disk:
    """What is where; paths outside of `tree` are taken as made on the way."""

    def __init__(self):
        self.tree = Folder()

    def _folder(self, path):
        here = self.tree
        for part in path.parts[1:]:
            if part not in here.now:
                here.now[part] = here.synced[part] = Folder()
            here = here.now[part]
        return here

    def mkdir(self, path):
        self._folder(path.parent).change("link", path.name, Folder())

    def create(self, path):
        self._folder(path.parent).change("link", path.name, File())

    def write(self, path, data):
        self._folder(path.parent).now[path.name].now += data

    def fsync(self, path):
        file = self._folder(path.parent).now[path.name]
        file.synced = file.now

    def rename(self, old, new):
        assert old.parent == new.parent
        folder = self._folder(old.parent)
        folder.change("rename", old.name, new.name, folder.now[old.name])

    def fsync_dir(self, path):
        folder = self._folder(path)
        folder.synced, folder.pending = dict(folder.now), []

    def unlink(self, path):
        self._folder(path.parent).change("unlink", path.name)

    rmdir = unlink

    def outcomes(self, draw):
        """Yield trees (nested dicts of bytes) that a crash may leave, all or a sample of them."""
        nodes = list(_nodes(self.tree))
        choices = [node.states() for node in nodes]
        total = 1
        for each in choices:
            total *= len(each)
        if total <= MOST:
            picks = itertools.product(*choices)
        else:
            ends = [[each[0] for each in choices], [each[-1] for each in choices]]
            now = [node.now for node in nodes]
            picks = [*ends, now, *([draw.choice(each) for each in choices] for _ in range(MOST))]
        for pick in picks:
            yield _laid(
                {id(node): state for node, state in zip(nodes, pick, strict=True)}, self.tree
            )


def _nodes(folder):
    yield folder
    inside = {id(node): node for node in [*folder.now.values(), *folder.synced.values()]}
    for operation in folder.pending:
        if operation[0] != "unlink":
            inside[id(operation[-1])] = operation[-1]
    for node in inside.values():
        if isinstance(node, Folder):
            yield from _nodes(node)
        else:
            yield node


def _laid(states, node):
    state = states[id(node)]
    if isinstance(node, File):
        return state
    return {name: _laid(states, child) for name, child in state.items()}


def _frozen(tree):
    return tree if isinstance(tree, bytes) else frozenset((n, _frozen(t)) for n, t in tree.items())


def _write(tree, path):
    if isinstance(tree, bytes):
        path.write_bytes(tree)
        return
    path.mkdir(exist_ok=True)
    for name, child in tree.items():
        _write(child, path / name)


class Trial:
    """A run of saves under a Recorder, and what must hold on every disk that a crash may leave."""

    def __init__(self, tmp_path, saves, *, recorder=None, **policy):
        self.root, self.place = tmp_path / "tier", tmp_path / "crashed"
        self.saves, self.seen, self.problems, self.disks = saves, {}, [], 0
        self.recorder, self.promises, self.kinds = recorder or Recorder(), [], []
        with Writer(
            [Tier.of(str(self.root))], tell=self._tell, files=self.recorder, **policy
        ) as writer:
            for snapshot in saves:
                writer.save(snapshot)
                assert writer.flush(60)

    def _tell(self, what):
        if what["phase"] == "committed":
            self.promises.append((len(self.recorder.log), what["step"]))
            self.kinds.append(what["kind"])
        assert what["phase"] != "failed", what

    def crash_everywhere(self, check, *, again=None):
        """Call `check(tier, promised steps)` on each disk; collect what it says is wrong."""
        draw = random.Random(7)
        for point in range(len(self.recorder.log) + 1):
            promised = frozenset(step for at, step in self.promises if at <= point)
            for tree in self.recorder.disk(point).outcomes(draw):
                for part in self.root.parts[1:]:
                    tree = tree.get(part, {})  # noqa: PLW2901 - down to the tier
                if (key := (_frozen(tree), promised)) in self.seen:
                    continue
                self.seen[key] = True
                shutil.rmtree(self.place, ignore_errors=True)
                _write(tree, self.place)
                tier = Tier.of(str(self.place))
                said = check(tier, promised) or (again and again(tier))
                if said:
                    self.problems.append((point, said))
        return self.problems


@pytest.fixture
def judged(snapshot, same):
    """What must hold: no committed step is lost, and what loads is what was saved."""

    def check_of(saves, *, all_of_them=True):
        texts = {}
        for each in saves:
            texts.setdefault(each.step, []).append(each)

        def check(tier, promised):
            try:
                found = restore.newest([tier])
            except CheckpointError as error:
                return f"lost {sorted(promised)}: {error}" if promised else ""
            if not any(same(found.snapshot, each) for each in texts[found.snapshot.step]):
                return f"step {found.snapshot.step} is not what was saved"
            if promised and found.snapshot.step < max(promised):
                return f"restored {found.snapshot.step} of {sorted(promised)}"
            lost = [step for step in promised if not verify.verify(tier, step).verifies]
            return f"lost {lost}" if lost and all_of_them else ""

        return check

    return check_of


CASES = {
    "full": ([10, 20], {}),
    "delta": ([10, 20, 30], {"delta": True, "full_every": 2}),
    "parts": ([10, 20], {"parts": 3}),
    "again": ([10, 10], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_no_crash_loses_a_committed_step(tmp_path, snapshot, judged, case):
    steps, policy = CASES[case]
    saves = [snapshot(step, seed=n, dense=False) for n, step in enumerate(steps)]
    if policy.get("delta"):
        saves = [snapshot(step, dense=False) for step in steps]
    trial = Trial(tmp_path, saves, **policy)
    assert ("delta" in trial.kinds) == (case == "delta")
    later = snapshot(99)

    def again(tier):
        told = []
        with Writer([tier], tell=told.append, files=Recorder()) as writer:
            writer.save(later)
        good = told[-1]["phase"] == "committed" and restore.newest([tier]).snapshot.step == 99
        return "" if good else f"nothing can be saved there any more: {told[-1]}"

    assert not trial.crash_everywhere(judged(saves), again=again)
    assert len(trial.seen) > 3 * len(steps)
    kinds = {operation[0] for operation in trial.recorder.log}
    assert kinds >= {"mkdir", "create", "write", "fsync", "rename", "fsync_dir"}


def test_no_crash_while_old_ones_are_removed_loses_the_newest(tmp_path, snapshot, judged):
    saves = [snapshot(step, dense=False) for step in (10, 20, 30, 40, 50)]
    trial = Trial(tmp_path, saves, delta=True, full_every=2, keep=1)
    assert {"unlink", "rmdir"} <= {operation[0] for operation in trial.recorder.log}

    def whole(tier):
        bad = [row for row in verify.everything([tier]) if not row.verifies and row.step]
        return f"left in pieces: {bad[0]}" if bad else ""

    assert not trial.crash_everywhere(judged(saves, all_of_them=False), again=whole)


def test_committed_is_durable_though_latest_cannot_be_written(tmp_path, snapshot, judged):
    class NoHint(Recorder):
        def create(self, path):
            if path.name.startswith(".tmp"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().create(path)

    saves = [snapshot(10), snapshot(20)]
    trial = Trial(tmp_path, saves, recorder=NoHint())
    assert not (trial.root / "LATEST").exists()
    assert not trial.crash_everywhere(judged(saves))


@pytest.mark.parametrize("lies", [{"fsync"}, {"fsync_dir"}])
def test_a_disk_that_does_not_sync_is_found_out(tmp_path, snapshot, judged, lies):
    saves = [snapshot(10), snapshot(20)]
    problems = Trial(tmp_path, saves, recorder=Recorder(lies)).crash_everywhere(judged(saves))
    assert any("lost" in said or "restored" in said for _, said in problems)


def test_the_model_forgets_what_was_not_synced():
    disk = Disk()
    disk.mkdir(Path("/a"))
    disk.create(Path("/a/b"))
    disk.write(Path("/a/b"), b"1234")
    found = [_frozen(tree) for tree in disk.outcomes(random.Random(0))]
    assert _frozen({}) in found
    assert _frozen({"a": {"b": b"12"}}) in found
    assert _frozen({"a": {"b": bytes(4)}}) in found
    disk.fsync(Path("/a/b"))
    disk.fsync_dir(Path("/a"))
    disk.fsync_dir(Path("/"))
    assert [_frozen(tree) for tree in disk.outcomes(random.Random(0))] == [
        _frozen({"a": {"b": b"1234"}})
    ]
