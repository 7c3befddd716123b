"""Small language models of Hugging Face."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

#: With 97 tokens and 128 positions.
_COMMON = {
    "vocab_size": 97,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 95,
    "eos_token_id": 96,
    "pad_token_id": 0,
}
_GPT = {"vocab_size": 97, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
_GPT |= {"bos_token_id": 95, "eos_token_id": 96}

#: Settings by type of the configuration.
CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": _GPT,
    "llama": _COMMON,
    "mistral": _COMMON | {"sliding_window": 9},
    "qwen2": _COMMON,
    "qwen3": _COMMON | {"head_dim": 16},
    "gemma": _COMMON | {"head_dim": 16},
    "gemma2": _COMMON | {"head_dim": 16, "sliding_window": 9},
    "gemma3_text": _COMMON | {"head_dim": 16, "sliding_window": 9},
    "phi": _COMMON,
    "phi3": _COMMON,
    "opt": _COMMON | {"ffn_dim": 96, "word_embed_proj_dim": 64},
    "gpt_neox": _COMMON,
    "gptj": _GPT | {"rotary_dim": 8},
    "gpt_neo": {
        "vocab_size": 97,
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 9,
        "max_position_embeddings": 128,
    },
    "bloom": {"vocab_size": 97, "hidden_size": 64, "n_layer": 2, "n_head": 4},
    "falcon": {
        "vocab_size": 97,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    "stablelm": _COMMON,
    "olmo2": _COMMON,
    "cohere": _COMMON,
    "starcoder2": _COMMON,
    "granite": _COMMON,
    "smollm3": _COMMON,
    "mamba": {"vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 2},
}


def language_model(name: str, **more: Any) -> Any:
    """A model of this type, with ``more`` settings, whose tokens depend on all of the text."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(name, **CONFIGS.get(name, _COMMON), **more)
    model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    return model


def prompts(*lengths: int) -> list[list[int]]:
    """Prompts of these lengths."""
    chosen = torch.Generator().manual_seed(1)
    return [torch.randint(5, 90, (length,), generator=chosen).tolist() for length in lengths]
