//! Counts over one stream.

/// Counts over one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub packets: u64,
    pub tnt_bits: u64,
    pub instructions: u64,
    pub conditional_branches: u64,
    pub returns: u64,
    pub compressed_returns: u64,
    pub calls: u64,
    pub psb: u64,
    pub ovf: u64,
    pub errors: u64,
    pub lost_bytes: u64,
}

impl std::ops::AddAssign for Statistics {
    fn add_assign(&mut self, other: Statistics) {
        self.packets += other.packets;
        self.tnt_bits += other.tnt_bits;
        self.instructions += other.instructions;
        self.conditional_branches += other.conditional_branches;
        self.returns += other.returns;
        self.compressed_returns += other.compressed_returns;
        self.calls += other.calls;
        self.psb += other.psb;
        self.ovf += other.ovf;
        self.errors += other.errors;
        self.lost_bytes += other.lost_bytes;
    }
}
