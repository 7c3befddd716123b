"""Trains a small GPT-2 of which each process has a part of each weight::

    torchrun --nproc-per-node 2 examples/tensor_parallel_gpt2.py

Without torchrun there is one process, which has the whole model. The losses are the same.
"""

import os

import torch
import torch.distributed as dist

from corsac.distributed import parallelize

STEPS, BATCH, LENGTH, WORDS = 4, 8, 32, 500


def model():
    """A small GPT-2 with random weights, of which the first and the last layer have one in common."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=2,
        n_head=4,
        # Parts of values have random numbers of their own, so that dropout would differ from one process.
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).train()


def loss(output, words):
    """The error of predicting each next word. On several processes no logits are whole."""
    logits = output.logits[:, :-1].reshape(-1, WORDS)
    return torch.nn.functional.cross_entropy(logits, words[:, 1:].reshape(-1))


def join():
    """Join the processes of torchrun, or be the only one."""
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "0"),
    ):
        os.environ.setdefault(name, value)
    dist.init_process_group("gloo")


def main():
    torch.set_num_threads(1)
    join()
    torch.manual_seed(1)
    batches = [torch.randint(WORDS, (BATCH, LENGTH)) for _ in range(STEPS)]
    own = parallelize(model(), (batches[0], batches[0]), {"use_cache": False}, loss_fn=loss)
    whole = model()
    optimizers = [torch.optim.AdamW(one.parameters(), lr=1e-3) for one in (own, whole)]
    if dist.get_rank() == 0:
        print("\n".join(str(own.plan).splitlines()[:12]), "...", sep="\n", flush=True)
    for step, words in enumerate(batches):
        losses = [
            own(words, words, use_cache=False),
            loss(whole(words, use_cache=False), words),
        ]
        for optimizer, one in zip(optimizers, losses, strict=True):
            optimizer.zero_grad()
            one.backward()
            optimizer.step()
        mine, wanted = (one.item() for one in losses)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mine:.5f}, on one process {wanted:.5f}", flush=True)
        assert abs(mine - wanted) < 1e-4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
