"""Tiny Hugging Face models: each architecture from its own configuration, with random weights.

Nothing is downloaded. Sizes are as small as an architecture allows, with two layers of each kind, and dropout as
the configuration has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: Size of the vocabulary, and length of sentences.
WORDS, LENGTH = 90, 12
TEXT = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
IMAGE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
FEW = {"num_labels": 5}


def words() -> torch.Tensor:
    """Two sentences, without special words."""
    return torch.randint(3, WORDS, (2, LENGTH))


def text() -> dict[str, Any]:
    """Two sentences, of which one is shorter, and their classes."""
    mask = torch.ones(2, LENGTH, dtype=torch.int64)
    mask[1, -3:] = 0
    return {"input_ids": words(), "attention_mask": mask, "labels": torch.tensor([1, 3])}


def prompt() -> dict[str, Any]:
    """Two sentences, whose words are the labels."""
    sentences = words()
    return {"input_ids": sentences, "labels": sentences, "use_cache": False}


def translation() -> dict[str, Any]:
    return {"input_ids": words(), "labels": words()[:, :7].clone(), "use_cache": False}


def image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 4])}


def images_and_text() -> dict[str, Any]:
    return {
        "input_ids": words(),
        "attention_mask": torch.ones(2, LENGTH, dtype=torch.int64),
        "pixel_values": torch.randn(2, 3, 32, 32),
        "return_loss": True,
    }


def speech() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 40), "labels": words(), "use_cache": False}


def waves() -> dict[str, Any]:
    return {"input_values": torch.randn(2, 800), "labels": torch.tensor([1, 3])}


@dataclass(frozen=True)
class Architecture:
    """Constructor and inputs of a model.

    Attributes:
        model: the name of a class of ``transformers``, with ``config_class``.
        config: the settings of its configuration.
        inputs: makes random arguments of a call, with labels, so that there is a loss.
        inference: the fraction of calls that is native at least, for inference.
        forward: the same for the forward pass in training.
        backward: the same for the backward pass.
        graphs: number of graphs that Dynamo makes of it, for inference.
    """

    model: str
    config: dict[str, Any]
    inputs: Callable[[], dict[str, Any]]
    inference: float = 0.9
    forward: float = 0.8
    backward: float = 0.85
    graphs: int = 1

    def make(self) -> torch.nn.Module:
        """A model in training mode."""
        import transformers

        cls = getattr(transformers, self.model)
        return cls(cls.config_class(**self.config)).train()


ARCHITECTURES = {
    "bert": Architecture("BertForSequenceClassification", TEXT | FEW, text),
    "roberta": Architecture("RobertaForSequenceClassification", TEXT | FEW, text),
    "distilbert": Architecture(
        "DistilBertForSequenceClassification",
        {"vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48} | FEW,
        text,
    ),
    "albert": Architecture(
        "AlbertForSequenceClassification", TEXT | FEW | {"embedding_size": 16}, text
    ),
    "electra": Architecture(
        "ElectraForSequenceClassification", TEXT | FEW | {"embedding_size": 16}, text
    ),
    "deberta-v2": Architecture(
        "DebertaV2ForSequenceClassification",
        TEXT
        | FEW
        | {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
        },
        text,
        graphs=2,
    ),
    "gpt2": Architecture("GPT2LMHeadModel", GPT, prompt, graphs=2),
    "gpt-neo": Architecture(
        "GPTNeoForCausalLM",
        {
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 4,
            "max_position_embeddings": 32,
        },
        prompt,
    ),
    "gpt-neox": Architecture("GPTNeoXForCausalLM", TEXT, prompt),
    "gpt-j": Architecture("GPTJForCausalLM", GPT | {"rotary_dim": 4}, prompt),
    "opt": Architecture(
        "OPTForCausalLM", TEXT | {"ffn_dim": 48, "word_embed_proj_dim": 32}, prompt
    ),
    "bloom": Architecture(
        "BloomForCausalLM",
        {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        prompt,
    ),
    "falcon": Architecture("FalconForCausalLM", TEXT, prompt),
    "llama": Architecture("LlamaForCausalLM", TEXT | {"num_key_value_heads": 2}, prompt),
    "qwen2": Architecture("Qwen2ForCausalLM", TEXT | {"num_key_value_heads": 2}, prompt),
    "qwen3": Architecture(
        "Qwen3ForCausalLM", TEXT | {"num_key_value_heads": 2, "head_dim": 8}, prompt
    ),
    "mistral": Architecture(
        "MistralForCausalLM", TEXT | {"num_key_value_heads": 2, "sliding_window": 4}, prompt
    ),
    "mixtral": Architecture(
        "MixtralForCausalLM",
        TEXT | {"num_key_value_heads": 2, "num_local_experts": 4},
        prompt,
        # Words are sorted by expert and written in place, and the sorting is left to PyTorch too.
        inference=0.5,
    ),
    "gemma": Architecture(
        "GemmaForCausalLM", TEXT | {"num_key_value_heads": 1, "head_dim": 8}, prompt
    ),
    "phi": Architecture("PhiForCausalLM", TEXT, prompt),
    "t5": Architecture(
        "T5ForConditionalGeneration",
        {
            "vocab_size": WORDS,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 48,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
        },
        translation,
    ),
    "bart": Architecture(
        "BartForConditionalGeneration",
        {
            "vocab_size": WORDS,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_position_embeddings": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
        translation,
        forward=0.75,
    ),
    "vit": Architecture("ViTForImageClassification", IMAGE | FEW, image),
    "dinov2": Architecture("Dinov2ForImageClassification", IMAGE | FEW, image),
    "swin": Architecture(
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
        }
        | FEW,
        image,
    ),
    "convnext": Architecture(
        "ConvNextForImageClassification",
        {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2} | FEW,
        image,
    ),
    "segformer": Architecture(
        "SegformerForImageClassification",
        {
            "num_encoder_blocks": 2,
            "depths": [2, 2],
            "hidden_sizes": [16, 32],
            "num_attention_heads": [2, 4],
            "sr_ratios": [2, 1],
            "patch_sizes": [7, 3],
            "strides": [4, 2],
            "mlp_ratios": [2, 2],
            "decoder_hidden_size": 16,
        }
        | FEW,
        image,
    ),
    "clip": Architecture(
        "CLIPModel",
        {
            "text_config": TEXT | {"max_position_embeddings": 32, "projection_dim": 16},
            "vision_config": IMAGE | {"projection_dim": 16},
            "projection_dim": 16,
        },
        images_and_text,
    ),
    "whisper": Architecture(
        "WhisperForConditionalGeneration",
        {
            "vocab_size": WORDS,
            "num_mel_bins": 8,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "max_source_positions": 20,
            "max_target_positions": 32,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 2,
        },
        speech,
    ),
    "wav2vec2": Architecture(
        "Wav2Vec2ForSequenceClassification",
        TEXT
        | FEW
        | {
            "conv_dim": [16, 16],
            "conv_stride": [5, 4],
            "conv_kernel": [10, 8],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 2,
            "classifier_proj_size": 16,
            "mask_time_prob": 0.0,
            "layerdrop": 0.0,
        },
        waves,
        graphs=2,
    ),
    "mamba": Architecture(
        "MambaForCausalLM",
        {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        prompt,
    ),
}
