"""A tiny writer per published format, from its layout; beside each, the plain model that it stands for.

A map's numbers are `Rounded`: codes, zero points and scales of a random weight, and the float32 weight that they mean.
Words are built bit by bit with shifts, as the formats' descriptions have it, not as the reader takes them apart.
"""

import json
from dataclasses import dataclass

import torch
from safetensors.torch import load_file, save_file

from outdraft.models.load import save_model
from outdraft.testing.tiny import random_decoder, tiny_config


@dataclass(frozen=True)
class Rounded:
    codes: torch.Tensor  # [out, in], 0 .. 2^bits - 1
    zeros: torch.Tensor  # [out, groups]
    scales: torch.Tensor  # [out, groups] float16
    index: torch.Tensor  # [in]: each input's group

    @property
    def whole(self):
        return (self.codes - self.zeros[:, self.index]) * self.scales.float()[:, self.index]


def rounded(weight, bits, group, symmetric, index=None):
    num_in = weight.shape[1]
    group = num_in if group == -1 else group
    index = torch.arange(num_in) // group if index is None else index
    top, middle = 2**bits - 1, 2 ** (bits - 1)
    scales, zeros = [], []
    for g in range(int(index.max()) + 1):
        own = weight[:, index == g]
        low, high = own.amin(1).clamp(max=0), own.amax(1).clamp(min=0)
        scale = (torch.maximum(-low, high) / (middle - 1) if symmetric else (high - low) / top).half()
        scales.append(scale)
        zeros.append(torch.full_like(low, middle) if symmetric else (-low / scale.float()).round())
    scales, zeros = torch.stack(scales, 1), torch.stack(zeros, 1).long()
    codes = (weight / scales.float()[:, index]).round().long() + zeros[:, index]
    return Rounded(codes.clamp(0, top), zeros, scales, index)


def words(values, bits, axis, order=None):
    """Values along `axis` into 32-bit words, the first of each word in its lowest bits; padded with zeros."""
    many = 32 // bits
    values = values.movedim(axis, -1).long()
    values = torch.nn.functional.pad(values, (0, -values.shape[-1] % many)).unflatten(-1, (-1, many))
    packed = torch.zeros(values.shape[:-1], dtype=torch.int64)
    for place in range(many):
        packed |= values[..., order[place] if order else place] << (bits * place)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return packed.to(torch.int32).movedim(-1, axis).contiguous()


def base_model(directory, config=None):
    """A small Llama whose widths the kernels know, saved as it is; its tensors."""
    config = config or tiny_config(hidden=128, heads=4, kv_heads=2, inner=256)
    save_model(random_decoder(config, dtype=torch.float32, exact=False), directory)
    return load_file(directory / "model.safetensors")


def is_map(name):
    return ".layers." in name and name.endswith("_proj.weight")


def publish(tmp_path, settings, write, choose=is_map, config=None):
    """(published, twin): `write(stem, weight)` gives a map's tensors by their last names, and the weight they mean."""
    plain, published = tmp_path / "plain", tmp_path / "published"
    tensors = base_model(plain, config)
    stored, twin = {}, {}
    for name, tensor in tensors.items():
        stem = name.removesuffix(".weight")
        parts, twin[name] = write(stem, tensor) if choose(name) else ({"weight": tensor}, tensor)
        stored |= {f"{stem}.{part}" if name.endswith(".weight") else name: one for part, one in parts.items()}
    published.mkdir()
    raw = json.loads((plain / "config.json").read_text())
    (published / "config.json").write_text(json.dumps(raw | {"quantization_config": settings}))
    save_file({name: tensor.contiguous() for name, tensor in stored.items()}, published / "model.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in twin.items()}, plain / "model.safetensors")
    return published, plain


def gptq(bits=4, group=32, symmetric=True, order="in order", minus_one=True, index=True):
    def write(stem, weight):
        groups = None
        if order == "by activation":
            size = weight.shape[1] if group == -1 else group
            shuffled = torch.randperm(weight.shape[1], generator=torch.Generator().manual_seed(3))
            groups = torch.empty(weight.shape[1], dtype=torch.long)
            groups[shuffled] = torch.arange(weight.shape[1]) // size
        one = rounded(weight, bits, group, symmetric, groups)
        zeros = one.zeros - 1 if minus_one else one.zeros
        parts = {
            "qweight": words(one.codes.t(), bits, 0),
            "qzeros": words(zeros.t(), bits, 1),
            "scales": one.scales.t(),
        }
        return parts | ({"g_idx": one.index.to(torch.int32)} if index else {}), one.whole

    settings = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "lm_head": False}
    settings |= {"desc_act": order != "in order", "damp_percent": 0.1, "true_sequential": True}
    return settings | ({} if minus_one else {"checkpoint_format": "gptq_v2"}), write


def awq(group=64, symmetric=False):
    order = (0, 2, 4, 6, 1, 3, 5, 7)

    def write(stem, weight):
        one = rounded(weight, 4, group, symmetric)
        parts = {"qweight": words(one.codes.t(), 4, 1, order), "qzeros": words(one.zeros.t(), 4, 1, order)}
        return parts | {"scales": one.scales.t()}, one.whole

    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return settings | {"modules_to_not_convert": None}, write
