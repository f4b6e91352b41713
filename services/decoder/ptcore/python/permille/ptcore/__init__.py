"""Intel Processor Trace: from the packets of a thread and the code it ran to calls, branch edges and losses."""

from permille.ptcore._ptcore import (
    INSTRUCTION_CLASSES,
    Batches,
    Binary,
    Capture,
    CaptureError,
    Categories,
    Column,
    Decoded,
    Image,
    PtConfig,
    Stream,
    decode,
    instructions,
    packets,
)

__all__ = [
    "INSTRUCTION_CLASSES",
    "Batches",
    "Binary",
    "Capture",
    "CaptureError",
    "Categories",
    "Column",
    "Decoded",
    "Image",
    "PtConfig",
    "Stream",
    "decode",
    "instructions",
    "packets",
]
