"""Trains a small GPT-2 that is cut into a pipeline, one stage on each process::

    torchrun --nproc-per-node 2 examples/pipeline_gpt2.py

Without torchrun there is one process, which has the whole model. The losses are the same.
"""

import os

import torch
import torch.distributed as dist

from corsac.distributed import pipeline

STEPS, BATCH, LENGTH, WORDS = 4, 16, 32, 500


def model():
    """A small GPT-2 with random weights, of which the first and the last layer have one in common."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=WORDS,
        n_positions=LENGTH,
        n_embd=64,
        n_layer=4,
        n_head=4,
        # A stage has its own random numbers, so that dropout would differ from one process.
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).train()


def loss(output, words):
    """The error of predicting each next word."""
    logits = output.logits[:, :-1].reshape(-1, WORDS)
    return torch.nn.functional.cross_entropy(logits, words[:, 1:].reshape(-1))


def whole_model(batches):
    """The losses of steps on one process without a pipeline."""
    whole = model()
    optimizer = torch.optim.AdamW(whole.parameters(), lr=1e-3)
    losses = []
    for words in batches:
        optimizer.zero_grad()
        own = loss(whole(input_ids=words, use_cache=False), words)
        own.backward()
        optimizer.step()
        losses.append(own.item())
    return losses


def main():
    torch.set_num_threads(1)
    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "1"),
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "0"),
    ):
        os.environ.setdefault(name, value)
    dist.init_process_group("gloo")
    is_last = dist.get_rank() == dist.get_world_size() - 1
    torch.manual_seed(1)
    batches = [torch.randint(WORDS, (BATCH, LENGTH)) for _ in range(STEPS)]
    pipe = pipeline(
        model(),
        (),
        {"input_ids": batches[0], "use_cache": False},
        schedule="1f1b",
        microbatches=4,
        loss_fn=loss,
    )
    optimizer = torch.optim.AdamW(pipe.parameters(), lr=1e-3)
    if dist.get_rank() == 0:
        print(pipe.plan, flush=True)
    wanted = whole_model(batches) if is_last else []
    for step, words in enumerate(batches):
        optimizer.zero_grad()
        losses = []
        pipe.step(input_ids=words, use_cache=False, target=words, losses=losses)
        optimizer.step()
        if is_last:
            mean = sum(own.item() for own in losses) / len(losses)
            print(f"step {step}: loss {mean:.5f}, on one process {wanted[step]:.5f}", flush=True)
            assert abs(mean - wanted[step]) < 1e-4
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
