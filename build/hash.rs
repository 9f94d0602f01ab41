//! Content hash for build keys: 128-bit FNV-1a. It guards against stale outputs, not against an adversary, and needs
//! no crate.

#[derive(Clone)]
pub struct Hash(u128);

impl Default for Hash {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Hash {
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds one field; its length goes in too, so that `ab`,`c` and `a`,`bc` differ.
    pub fn field(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        for &b in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(b)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        self
    }
    pub fn hex(&self) -> String {
        format!("{:032x}", self.0)
    }
}
