"""Records what torchao makes of exported programs: ``python tests/quantization/record_pt2e.py``.

PyTorch 2.15 no longer has PT2E quantisation. It needs torchao (0.18.0), which the tests do not: they read the record.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torchao
import torchao.quantization.pt2e as pt2e
from torchao.quantization.pt2e import quantize_pt2e
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer
from torchao.testing.pt2e import _xnnpack_quantizer

sys.path.insert(0, str(Path(__file__).parent.parent))

from kit.exported_models import CASES, observed_and_converted

RECORD = Path(__file__).with_name("pt2e_of_torchao.json")


def main() -> None:
    cases = {}
    for name, kind in CASES:
        packages = (quantize_pt2e, x86_inductor_quantizer, _xnnpack_quantizer, pt2e)
        prepared, result, gradients, converted, output = observed_and_converted(
            packages, name, kind
        )
        cases[f"{name}, {kind}"] = {
            "prepared": prepared.split("\n"),
            "result": result.flatten().tolist(),
            "gradients": {
                own: None if one is None else [one.sum().item(), one.norm().item()]
                for own, one in gradients.items()
            },
            "converted": converted.split("\n"),
            "output": output.flatten().tolist(),
        }
    record = {"torchao": torchao.__version__, "cases": cases}
    RECORD.write_text(json.dumps(record, indent=0) + "\n")


if __name__ == "__main__":
    main()
