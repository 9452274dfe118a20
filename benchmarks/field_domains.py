"""Models of libraries for one domain: medicine, graphs, physics, spoken and written language; each with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from field_models import Inputs, Maker
from torch import nn

WORDS = 120
FIRST = "decoder_start_token_id"
SIZES: dict[int, tuple[str, ...]] = {  # of a configuration of transformers: what it has of these
    1: ("bos_token_id", FIRST),
    2: (
        *("eos_token_id", "num_hidden_layers", "encoder_layers", "decoder_layers", "num_layers", "num_decoder_layers"),
        *("n_layer", "n_layers", "num_key_value_heads", "mask_time_length"),
    ),
    3: ("num_feat_extract_layers",),
    4: (
        *("num_attention_heads", "encoder_attention_heads", "decoder_attention_heads", "num_heads", "n_head"),
        *("n_heads", "num_conv_pos_embedding_groups"),
    ),
    8: ("head_dim", "d_kv", "attention_head_size"),
    16: ("num_conv_pos_embeddings",),
    32: ("hidden_size", "d_model", "n_embd", "embed_dim", "dim", "embedding_size", "encoder_hidden_size"),
    64: (
        *("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "hidden_dim"),
        "max_position_embeddings",
    ),
    WORDS: ("vocab_size",),
}
CONVOLUTIONS = {"conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3)}
SMALL: dict[str, Any] = {"pad_token_id": 0, **CONVOLUTIONS, **{n: size for size, names in SIZES.items() for n in names}}
MIXED: dict[str, Any] = SMALL | {  # of experts, and of layers other than attention
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "n_shared_experts", "n_group", "topk_group"), 2),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("sliding_window", "v_head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "mamba_d_head"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "mamba_d_state", "state_size", "index_head_dim"), 16),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "attention_hidden_size"), 32),
    **dict.fromkeys(("word_embed_proj_dim", "rotary_dim", "lru_width", "n_positions"), 32),
    **dict.fromkeys(("n_inner", "ffn_hidden_size", "n_ctx"), 64),
}
MASKED = (
    "Albert", "Bert", "BigBird", "ConvBert", "Deberta", "DebertaV2", "DistilBert", "Electra", "Esm", "FNet",
    "LayoutLM", "Longformer", "MPNet", "MobileBert", "ModernBert", "Nystromformer", "RemBert", "RoFormer", "Roberta",
    "SqueezeBert", "Yoso",
)  # fmt: skip
FROM_TEXT_TO_TEXT = ("Bart", "Blenderbot", "LongT5", "MBart", "MT5", "Marian", "Pegasus", "SwitchTransformers", "T5")
CAUSAL = (
    "Afmoe", "Apertus", "Arcee", "AriaText", "Bart", "Beam", "BigBird", "BigBirdPegasus", "BioGpt", "BitNet",
    "Blenderbot", "BlenderbotSmall", "Bloom", "Camembert", "Cohere", "Cohere2", "Cohere2Moe", "CpmAnt",
    "Cwm", "Data2VecText", "DeepseekV4", "DiffLlama", "Doge", "Electra", "Emu3", "Ernie", "Ernie4_5", "Ernie4_5_Moe",
    "Exaone4", "ExaoneMoe", "FalconH1", "Flint", "GPTBigCode", "GPTNeoX", "GPTNeoXJapanese",
    "Gemma", "Gemma2", "Gemma3", "Glm", "Glm4", "GptOss", "Granite", "GraniteMoe", "GraniteMoeSWA",
    "GraniteMoeShared", "GraniteSWA", "Helium", "HrmText", "HunYuanDenseV1", "HunYuanMoEV1", "HyperCLOVAX", "Jais2",
    "JetMoe", "Lfm2", "Llama", "Llama4", "MBart", "Marian", "MegatronBert", "MiniMax", "MiniMaxM3VL", "Ministral",
    "Ministral3", "Mistral", "Mixtral", "Mllama", "ModernBertDecoder", "Mpt", "Mvp", "NanoChat", "Nemotron", "OPT",
    "Olmo", "Olmo2", "Olmo3", "OlmoHybrid", "PLBart", "Pegasus", "Persimmon", "Phi", "Phi3",
    "Phimoe", "Qwen2", "Qwen2Moe", "Qwen3", "RemBert", "RoCBert", "RoFormer", "Roberta", "RobertaPreLayerNorm",
    "Rwkv", "SeedOss", "SmolLM3", "StableLm", "Starcoder2", "TrOCR", "VaultGemma", "Whisper", "XGLM", "XLMRoberta",
    "XLMRobertaXL",
)  # fmt: skip
SEEN = (
    "Beit", "Bit", "ConvNext", "ConvNextV2", "Cvt", "Data2VecVision", "DeiT", "Dinov2", "Dinov2WithRegisters",
    "EfficientNet", "FocalNet", "HGNetV2", "IJepa", "Levit", "MobileNetV1", "MobileNetV2", "MobileViT", "MobileViTV2",
    "PPLCNet", "PoolFormer", "Pvt", "PvtV2", "RegNet", "ResNet", "Segformer", "SwiftFormer", "Swinv2", "TextNet",
    "ViT", "ViTMSN",
)  # fmt: skip
IN_USUAL_SIZES = (
    "ConvNext", "ConvNextV2", "Cvt", "EfficientNet", "Levit", "Pvt", "PvtV2", "Segformer", "Swinv2",
)  # fmt: skip
SPOKEN = ("Hubert", "UniSpeech", "Wav2Vec2", "WavLM")
EDGE = {"image_size": 64}
SETTINGS: dict[str, dict[str, Any]] = {
    "BigBird": {"attention_type": "original_full"},
    "Deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "Esm": {"mask_token_id": 3, "position_embedding_type": "rotary", "token_dropout": False},
    "Longformer": {"attention_window": 8},
    "MobileBert": {"intra_bottleneck_size": 32, "true_hidden_size": 32},
}


def of_monai() -> dict[str, Maker]:
    """Segmentation of small volumes, and a loss of Dice and cross entropy."""

    def net(name: str, *args: Any, edge: int = 32, count: int = 1, **settings: Any) -> tuple[nn.Module, Inputs]:
        model = getattr(import_module("monai.networks.nets"), name)(*args, **settings)
        return model, ((torch.randn(count, 1, edge, edge, edge),), {})

    channels, doubled = (8, 8, 16, 16, 32, 8), {"num_res_units": 2, "dropout": 0.1}
    supervised = {"deep_supervision": True, "deep_supr_num": 1}

    def with_loss() -> tuple[nn.Module, Inputs]:
        loss = import_module("monai.losses").DiceCELoss(to_onehot_y=True, softmax=True)
        model, ((volumes,), _) = net("UNet", 3, 1, 2, (8, 16, 32), (2, 2), count=2)

        class Scored(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model, self.loss = model, loss

            def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
                return self.loss(self.model(x), labels)

        return Scored(), ((volumes, torch.randint(0, 2, volumes.shape)), {})

    return {
        "AttentionUnet": lambda: net("AttentionUnet", 3, 1, 2, (8, 16, 32), (2, 2)),
        "BasicUNet": lambda: net("BasicUNet", 3, 1, 2, channels),
        "BasicUNetPlusPlus": lambda: net("BasicUNetPlusPlus", 3, 1, 2, channels),
        "DenseNet": lambda: net("DenseNet", 3, 1, 2, 8, 8, (2, 2), count=2),
        "DynUNet": lambda: net("DynUNet", 3, 1, 2, (3, 3, 3), (1, 2, 2), (2, 2), **supervised),
        "HighResNet": lambda: net("HighResNet", 3, 1, 2, edge=24),
        "MedNeXt": lambda: net("MedNeXt", 3, 8, 1, 2),
        "SegResNet": lambda: net("SegResNet", 3, init_filters=8, in_channels=1, dropout_prob=0.1),
        "SegResNetVAE": lambda: net("SegResNetVAE", (32, 32, 32), init_filters=8, in_channels=1),
        "SwinUNETR": lambda: net("SwinUNETR", in_channels=1, out_channels=2, feature_size=12, edge=64),
        "UNETR": lambda: net("UNETR", 1, 2, (32, 32, 32), 8, 48, 96, 4),
        "UNet": lambda: net("UNet", 3, 1, 2, (8, 16, 32), (2, 2), count=2, **doubled),
        "UNet and DiceCELoss": with_loss,
        "VNet": lambda: net("VNet", 3, 1, 2),
    }


def of_torch_geometric() -> dict[str, Maker]:
    """Graph networks of three layers; the edges are an input."""
    points = {"PNA": {"aggregators": ["mean", "max"], "scalers": ["identity"], "deg": torch.tensor([1, 5, 9, 7])}}

    def net(name: str) -> tuple[nn.Module, Inputs]:
        kind = getattr(import_module("torch_geometric.nn"), name)
        model = kind(16, 32, 3, 8, dropout=0.1, **points.get(name, {}))
        return model, ((torch.randn(40, 16), torch.randint(0, 40, (2, 160))), {})

    return {name: lambda n=name: net(n) for name in ("EdgeCNN", "GAT", "GCN", "GIN", "GraphSAGE", "PNA")}


def of_neuralop() -> dict[str, Maker]:
    """Fourier neural operators, whose weights are complex."""

    def net(name: str) -> tuple[nn.Module, Inputs]:
        kind = getattr(import_module("neuralop.models"), name)
        model = kind(n_modes=(8, 8), hidden_channels=16, in_channels=1, out_channels=1)
        return model, ((torch.randn(2, 1, 32, 32),), {})

    return {name: lambda n=name: net(n) for name in ("FNO", "TFNO")}


def of_transformers() -> dict[str, Maker]:
    """Causal and masked language models, from text to text, speech to text, and classes of images."""
    transformers = import_module("transformers")

    def net(name: str, head: str, sizes: dict[str, Any] = SMALL, /, **given: Any) -> tuple[nn.Module, Inputs]:
        kind = getattr(transformers, name + head)
        usual = kind.config_class()
        settings = {key: value for key, value in sizes.items() if hasattr(usual, key) or key == FIRST}
        return kind(kind.config_class(**(settings | SETTINGS.get(name, {})))), ((), given)

    def words() -> dict[str, torch.Tensor]:
        mask = torch.ones(2, 16, dtype=torch.long)
        mask[1, 13:] = 0
        return {"input_ids": word_ids(2, 16), "attention_mask": mask, "labels": word_ids(2, 16)}

    def sound() -> dict[str, torch.Tensor]:
        return {"input_values": torch.randn(2, 4000), "labels": word_ids(2, 5)}

    def seen(name: str) -> tuple[nn.Module, Inputs]:
        sizes = EDGE if name in IN_USUAL_SIZES else SMALL | EDGE
        return net(name, "ForImageClassification", sizes, pixel_values=torch.randn(2, 3, 64, 64))

    found: dict[str, Maker] = {name: lambda n=name: net(n, "ForMaskedLM", **words()) for name in MASKED}
    found |= {
        name: lambda n=name: net(n, "MTModel" if n == "Marian" else "ForConditionalGeneration", **words())
        for name in FROM_TEXT_TO_TEXT
    }
    found |= {f"{name}ForCausalLM": lambda n=name: net(n, "ForCausalLM", MIXED, **words()) for name in CAUSAL}
    found |= {f"{name}ForImageClassification": lambda n=name: seen(n) for name in SEEN}
    return found | {name: lambda n=name: net(n, "ForCTC", **sound()) for name in SPOKEN}


def word_ids(*shape: int) -> torch.Tensor:
    """Numbers of words of a vocabulary of `WORDS`, without the three that models keep for themselves."""
    return torch.randint(3, WORDS, shape)


DOMAINS: dict[str, Callable[[], dict[str, Maker]]] = {
    "monai": of_monai,
    "torch_geometric": of_torch_geometric,
    "neuralop": of_neuralop,
    "transformers": of_transformers,
}
