"""Trains a small GPT-2 on parts of each batch, with two processes for each part, which have parts of each weight::

    torchrun --nproc-per-node 4 examples/data_parallel_gpt2.py

Without torchrun there is one process. The losses are those of one process with the whole batch.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from corsac.distributed import data_parallel, parallelize
from tensor_parallel_gpt2 import BATCH, LENGTH, STEPS, WORDS, join, loss, model


def main():
    torch.set_num_threads(1)
    join()
    count = dist.get_world_size()
    sizes = (count // 2, 2) if count % 2 == 0 else (count, 1)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("dp", "tp"))
    replica, replicas = mesh["dp"].get_local_rank(), mesh["dp"].size()
    torch.manual_seed(1)
    batches = [torch.randint(WORDS, (BATCH, LENGTH)) for _ in range(STEPS)]
    part = batches[0].chunk(replicas)[replica]
    parts = parallelize(model(), (part, part), {"use_cache": False}, mesh["tp"], loss_fn=loss)
    own = data_parallel(parts, mesh=mesh["dp"], bucket_bytes=2**17)
    whole = model()
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-3) for one in (own, whole)]
    if dist.get_rank() == 0:
        sizes = [sum(bucket.lengths) for bucket in own.buckets]
        print(f"{len(sizes)} buckets of {sizes} gradients", flush=True)
    for step, words in enumerate(batches):
        part = words.chunk(replicas)[replica]
        losses = [own(part, part, use_cache=False), loss(whole(words, use_cache=False), words)]
        for optimizer, one in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()
        mean = losses[0].detach() / replicas
        dist.all_reduce(mean, group=mesh["dp"].get_group())
        mine, wanted = mean.item(), losses[1].item()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mine:.5f}, on one process {wanted:.5f}", flush=True)
        assert abs(mine - wanted) < 1e-4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
