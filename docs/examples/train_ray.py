"""The same training as a Ray Train job: the loop is that of train_torchrun.py, Ray starts it.

    python -m rackproof.harness.launch.rackproof_shim >rackproof_shim.py
    rackproof drill gpu-loss --steps 60 --replicas 1 -- python train_ray.py --steps 60

A worker that is killed makes Ray start all workers again (FailureConfig), and the loop goes on from
the newest checkpoint. Ray must be started by the script itself, as here: a drill hits no process
that is not below its own command, so the workers of a cluster that is there already are safe.
"""

import argparse
import os
from pathlib import Path

import rackproof_shim as rp
import ray
import ray.train
import ray.train.torch
import train_torchrun


def worker(config: dict) -> None:
    """What each worker does; Ray has made the process group."""
    # A worker that Ray starts again has the environment of the first: what is stored decides.
    os.environ.update(config["drill"], RP_RESUME="1")
    train_torchrun.train(config["steps"], config["every"])


def main() -> None:
    """Start a Ray of our own, and train."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    ray.init(address="local", include_dashboard=False)
    try:
        ray.train.torch.TorchTrainer(
            worker,
            train_loop_config={
                "steps": given.steps,
                "every": given.every,
                "drill": rp.environment(),  # workers do not inherit this script's environment
            },
            torch_config=ray.train.torch.TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(num_workers=given.workers),
            run_config=ray.train.RunConfig(
                storage_path=str(Path(os.environ.get("RP_RUN_DIR", "ray-results")).resolve()),
                failure_config=ray.train.FailureConfig(max_failures=3),
            ),
        ).fit()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
