"""Peak speed and memory of accelerators, as published by their makers. None of these numbers was measured here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """One GPU: operations per second for dense matrices in bfloat16 and float32, bytes of memory, and the source."""

    bfloat16: float
    float32: float
    memory: float
    source: str

    def peak(self, precision: str) -> float:
        return self.float32 if precision == "float32" else self.bfloat16


# float32 is without TF32, which PyTorch disables by default.
ACCELERATORS = {
    "a100": Accelerator(312e12, 19.5e12, 80e9, "NVIDIA's data sheet of the A100 80GB"),
    "h100": Accelerator(989e12, 67e12, 80e9, "NVIDIA's data sheet of the H100 SXM"),
    "h200": Accelerator(989e12, 67e12, 141e9, "NVIDIA's data sheet of the H200 SXM"),
    "l4": Accelerator(121e12, 30.3e12, 24e9, "NVIDIA's data sheet of the L4"),
}
