"""A tiny writer per published format, from its layout; beside each, the plain model that it stands for.

A map's numbers are `Rounded`: codes, zero points and scales of a random weight, and the float32 weight that they mean.
Words are built bit by bit with shifts, as the formats' descriptions have it, not as the reader takes them apart.
"""

import json
from dataclasses import dataclass

import torch
from safetensors.torch import load_file, save_file

from outdraft.models.files.load import save_model
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


def auto_round():
    settings, write = gptq()
    return settings | {"quant_method": "auto-round", "packing_format": "auto_round:auto_gptq"}, write


def awq(group=64, symmetric=False):
    order = (0, 2, 4, 6, 1, 3, 5, 7)

    def write(stem, weight):
        one = rounded(weight, 4, group, symmetric)
        parts = {"qweight": words(one.codes.t(), 4, 1, order), "qzeros": words(one.zeros.t(), 4, 1, order)}
        return parts | {"scales": one.scales.t()}, one.whole

    settings = {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm", "zero_point": True}
    return settings | {"modules_to_not_convert": None}, write


def packed(bits=4, group=32, symmetric=True, order="in order", signed_zeros=False):
    """compressed-tensors, pack-quantized."""
    _, write_gptq = gptq(bits, group, symmetric, order)

    def write(stem, weight):
        parts, whole = write_gptq(stem, weight)
        index = parts["g_idx"].long()
        one = rounded(weight, bits, group, symmetric, index)
        made = {"weight_packed": words(one.codes, bits, 1), "weight_scale": one.scales}
        made["weight_shape"] = torch.tensor(weight.shape)
        if not symmetric:
            signed = (one.zeros - 2 ** (bits - 1)).to(torch.int8)
            made["weight_zero_point"] = signed if signed_zeros else words(one.zeros, bits, 0)
        return made | ({"weight_g_idx": one.index.to(torch.int32)} if order != "in order" else {}), whole

    return scheme("pack-quantized", "int", bits, symmetric, **by_group(group)), write


def by_group(group):
    """The settings of groups of inputs, -1: one an output."""
    return {"strategy": "channel"} if group == -1 else {"strategy": "group", "group_size": group}


def scheme(form, kind, bits, symmetric=True, **more):
    weights = {"num_bits": bits, "type": kind, "symmetric": symmetric, "dynamic": False, **more}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "sparsity_config": {},
    }


def bytes_of(group=-1, symmetric=True, one_scale=False):
    """compressed-tensors, int-quantized."""

    def write(stem, weight):
        one = rounded(weight.reshape(1, -1) if one_scale else weight, 8, -1 if one_scale else group, symmetric)
        codes = (one.codes - 128).to(torch.int8).view(weight.shape)
        made = {"weight": codes, "weight_scale": one.scales.view(-1) if one_scale else one.scales}
        if not symmetric:
            made["weight_zero_point"] = (one.zeros - 128).to(torch.int8)
        return made, one.whole.view(weight.shape)

    spread = {"strategy": "tensor"} if one_scale else by_group(group)
    return scheme("int-quantized", "int", 8, symmetric, **spread), write


def floats(settings, spread, name="weight_scale_inv"):
    """8-bit floats; `spread`: [rows, columns] that share a factor, 0: all of them."""

    def write(stem, weight):
        rows, columns = (size or whole for size, whole in zip(spread, weight.shape, strict=True))
        factors = torch.stack(
            [
                torch.stack([block.abs().max() / 448 for block in band.split(columns, 1)])
                for band in weight.split(rows, 0)
            ]
        )
        wide = torch.kron(factors, torch.ones(rows, columns))[: weight.shape[0], : weight.shape[1]]
        stored = (weight / wide).to(torch.float8_e4m3fn)
        return {"weight": stored, name: factors if spread != (0, 0) else factors.view(())}, stored.float() * wide

    return settings, write


def fp8(block=(128, 128), name="weight_scale_inv"):
    settings = {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": ["lm_head"]}
    return floats({**settings, "weight_block_size": list(block) if block else None}, block or (0, 0), name)


LEVELS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def fours(kind="nvfp4", by="compressed-tensors"):
    """Floats of 4 bits, two neighbours in a byte. nvfp4: a factor of 8 bits for 16; mxfp4: a power of two for 32."""
    size = 16 if kind == "nvfp4" else 32

    def write(stem, weight):
        tops = weight.unflatten(1, (-1, size)).abs().amax(2) / 6
        if kind == "nvfp4":
            over = (448 / tops.max()).float()
            scales = (tops * over).to(torch.float8_e4m3fn)
            factor = 1 / over
            wide = scales.float()
        else:
            factor, exponents = torch.tensor(1.0), tops.log2().ceil()
            scales, wide = (exponents + 127).to(torch.uint8), exponents.exp2()
        near = weight / (wide * factor).clamp(min=1e-30).repeat_interleave(size, 1)
        codes = (near.abs()[:, :, None] - LEVELS).abs().argmin(2)
        whole = LEVELS[codes] * near.sign() * wide.repeat_interleave(size, 1) * factor
        codes = (codes + 8 * (near < 0)).to(torch.uint8)
        parts = {"weight_packed": codes[:, 0::2] | codes[:, 1::2] << 4, "weight_scale": scales}
        if by == "modelopt":
            parts["weight"] = parts.pop("weight_packed")
            parts |= {"weight_scale_2": factor, "input_scale": torch.tensor(0.1)}
        elif kind == "nvfp4":
            parts |= {"weight_global_scale": over.view(1), "input_global_scale": torch.ones(1)}
        return parts, whole

    if by == "modelopt":
        return {"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"}}, write
    strategy = "tensor_group" if kind == "nvfp4" else "group"
    return scheme(f"{kind}-pack-quantized", "float", 4, strategy=strategy, group_size=size), write


def modelopt():
    return fours(by="modelopt")


def change_tensors(directory, edit):
    path = directory / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
