"""What accelerators can do at most, by their makers; no figure of these was measured here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Accelerator:
    """One GPU.

    Attributes:
        bfloat16, float32: floating point operations a second, dense matrices.
        memory: bytes.
        source: of these figures.
    """

    bfloat16: float
    float32: float
    memory: float
    source: str

    def peak(self, precision: str) -> float:
        """Operations a second in `train.precision`; `auto` is bfloat16 on all of these devices."""
        return self.float32 if precision == "float32" else self.bfloat16


# float32 is that without TF32, which PyTorch leaves off.
ACCELERATORS = {
    "a100": Accelerator(312e12, 19.5e12, 80e9, "NVIDIA's data sheet of the A100 80GB"),
    "h100": Accelerator(989e12, 67e12, 80e9, "NVIDIA's data sheet of the H100 SXM"),
    "h200": Accelerator(989e12, 67e12, 141e9, "NVIDIA's data sheet of the H200 SXM"),
    "l4": Accelerator(121e12, 30.3e12, 24e9, "NVIDIA's data sheet of the L4"),
}
