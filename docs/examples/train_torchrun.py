"""A plain PyTorch script: data-parallel over gloo, started by torchrun, which goes on after a kill.

    python -m rackproof.harness.launch.rackproof_shim >rackproof_shim.py
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 GLOO_SOCKET_IFNAME=lo
    rackproof drill gpu-loss --steps 60 --replicas 1 --require L4 -- \
        torchrun --standalone --nproc-per-node 2 --max-restarts 3 train_torchrun.py --steps 60

What makes it drillable is marked with (1) to (5). It needs torch and safetensors, and runs without
rackproof just as well. The first variable is torch's own: without it, ranks that torchrun starts
again look for the addresses of those that are gone (github.com/pytorch/pytorch/issues/135712).
"""

import argparse
from pathlib import Path

import rackproof_shim as rp
import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: see the end
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

SAMPLES, BATCH = 4096, 32  # of the data set, and of a step over all ranks


def batch_at(offset: int, seed: int) -> list[int]:
    """The ids of the samples of a step: a function of the offset alone, whoever computes it."""
    epoch, start = divmod(offset, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(seed + epoch))
    return order[start : start + BATCH].tolist()


def samples(ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """What a data set would hold under these ids."""
    x = torch.stack([torch.sin(torch.arange(1.0, 17.0) * (number + 1)) for number in ids])
    return x, x.sum(1, keepdim=True).tanh()


def everything(model: nn.Module, optimizer: torch.optim.Optimizer, offset: int) -> dict:
    """(1) The whole state, as tensors with names: what is left out here is lost after a restart.

    Random numbers are every rank's own, so that all ranks must call this.
    """
    state = {f"model/{name}": each for name, each in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        for name, each in moments.items():
            state[f"optimizer/{index}/{name}"] = torch.as_tensor(each)
    own = torch.get_rng_state()
    random = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(random, own)
    state |= {f"random/{rank}": each for rank, each in enumerate(random)}
    return state | {"offset": torch.tensor(offset)}


def put_back(state: dict, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The reverse of `everything`; returns the offset."""
    weights = {name[6:]: each for name, each in state.items() if name.startswith("model/")}
    model.load_state_dict(weights)
    moments: dict = {}
    for name, each in state.items():
        if name.startswith("optimizer/"):
            _, index, key = name.split("/")
            moments.setdefault(int(index), {})[key] = each
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})
    torch.set_rng_state(state[f"random/{dist.get_rank()}"])
    return int(state["offset"])


def save(state: dict, step: int) -> None:
    """(2) One name a step, given last: a kill at any moment leaves the one before it whole.

    safetensors holds tensors and nothing that runs; a pickle (torch.save) runs what is in it when
    it is loaded, unless one remembers weights_only=True, and a judge cannot hash its tensors.
    """
    path = Path(rp.checkpoint_dir(), f"step-{step:08d}.safetensors")
    with rp.committing(path, step) as writing:
        save_file({name: each.contiguous() for name, each in state.items()}, writing)


def newest() -> tuple[int, dict | None]:
    """(3) The newest checkpoint that can be read; rank 0 decides, so that all take the same."""
    found: list = [0]
    if dist.get_rank() == 0 and rp.resume():
        for path in sorted(Path(rp.checkpoint_dir()).glob("step-*.safetensors"), reverse=True):
            try:
                load_file(path)
            except (SafetensorError, OSError) as error:
                rp.fault(f"{path} was passed over: {error}")
                continue
            found = [str(path)]
            break
    dist.broadcast_object_list(found)
    if not found[0]:
        return 0, None
    step = int(Path(found[0]).stem.partition("-")[2])
    rp.restored(step, found[0])
    return step, load_file(found[0])


def train(steps: int, every: int) -> None:
    """The loop, in a process group that is there already."""
    rank, world = dist.get_rank(), dist.get_world_size()
    rp.hello(rank, world)  # (4) this process is rank so-and-so: that is who can be hit
    rp.catch_sigterm()
    torch.use_deterministic_algorithms(mode=True)
    torch.set_num_threads(1)  # another number of threads adds up in another order
    torch.manual_seed(rp.seed() * 1000 + rank)
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    step, state = newest()
    offset = 0 if state is None else put_back(state, net, optimizer)

    stopping = torch.zeros(1)
    while step < steps and not stopping:
        ids = batch_at(offset, rp.seed())
        x, y = samples(ids[rank::world])
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step, offset = step + 1, offset + len(ids)

        total = loss.detach().clone()
        dist.all_reduce(total)
        stopping.fill_(rp.stopping())
        dist.all_reduce(stopping, dist.ReduceOp.MAX)  # all ranks stop after the same step
        state = everything(net, optimizer, offset)
        # (5) The step is told when its state stands, and with the digest of that state.
        rp.step(step, loss=total.item() / world, samples=ids, digest=rp.digest(state))
        if rank == 0 and (step % every == 0 or step == steps or stopping):
            save(state, step)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    given = parser.parse_args()
    dist.init_process_group("gloo")
    train(given.steps, given.every)
    dist.barrier()  # nobody leaves while another still talks to it
    # This ends gloo's threads, unless something holds the group: then they outlive Python, and may
    # abort it at exit. DistributedDataParallel imports torch.distributed.nn, whose functions have
    # as their default the group that there is by then; at the top of this file there is none.
    dist.destroy_process_group()
