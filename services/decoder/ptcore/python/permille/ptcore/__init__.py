"""Intel Processor Trace: from the packets of a thread and the code it ran to calls, branch edges and losses."""

from permille.ptcore._ptcore import Binary, Column, Decoded, Image, PtConfig, decode, instructions, packets

__all__ = ["Binary", "Column", "Decoded", "Image", "PtConfig", "decode", "instructions", "packets"]
