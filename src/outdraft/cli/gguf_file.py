"""`outdraft quantize --type`: one GGUF file in llama.cpp's block formats, and what it holds."""

from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console


def round_to_gguf(model: str, out: Path, mixture: str, console: Console) -> dict[str, Any]:
    """Write it, and say on the console how far it is; returns the report."""
    from outdraft.models.remake.gguf_round import write_rounded_gguf
    from outdraft.weights.digest import weight_files
    from outdraft.weights.hub import resolve

    source = resolve(model)
    with console.status("loading") as status:
        kinds = write_rounded_gguf(
            source, out, mixture, lambda done, count: status.update(f"rounding, {100 * done // count} % done")
        )
    return {
        "model": model,
        "out": str(out),
        "type": mixture,
        "tensors": dict(Counter(kinds.values()).most_common()),
        "bytes_before": sum(file.stat().st_size for file in weight_files(source)),
        "bytes_after": out.stat().st_size,
    }


def show(report: dict[str, Any], console: Console) -> None:
    """What was written, and how large it is: two lines."""
    before, after = report["bytes_before"] / 1e6, report["bytes_after"] / 1e6
    held = ", ".join(f"{count} {kind}" for kind, count in report["tensors"].items())
    console.print(f"{report['model']} -> {report['out']}  ({report['type']}: {held})", markup=False, soft_wrap=True)
    console.print(f"weights  {before:.1f} MB -> {after:.1f} MB  ({after / before:.0%})", markup=False)
