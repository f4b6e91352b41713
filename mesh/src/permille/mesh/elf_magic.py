"""How every ELF file begins."""

# System V ABI, "ELF Identification": EI_MAG0 to EI_MAG3.
ELF_MAGIC = b"\x7fELF"
