//! What writer and reader agree on: the numbers of records and the state that differences are taken from.

/// What differences are taken from; zero at the start of each chunk.
#[derive(Default)]
pub struct Last {
    pub time: u64,
    pub correlation: u64,
    pub node: u64,
}

pub mod tag {
    pub const NAME: u8 = 1;
    pub const FACT: u8 = 2;
    pub const CLOCK: u8 = 3;
    pub const PROCESS: u8 = 4;
    pub const DEVICE: u8 = 5;
    pub const SHAPE: u8 = 6;
    pub const PLACE: u8 = 7;
    pub const RESET: u8 = 8;
    pub const OPERATION: u8 = 16;
    pub const CALL: u8 = 17;
    pub const SYNC: u8 = 18;
    pub const EVENT: u8 = 19;
    pub const OVERHEAD: u8 = 20;
    pub const MARKER: u8 = 21;
    pub const EXTERNAL: u8 = 22;
    pub const NODE: u8 = 23;
    pub const LABEL: u8 = 24;
    pub const WINDOW: u8 = 25;
    pub const DROPPED: u8 = 26;
    pub const END: u8 = 31;
}

/// Bits of an operation's first field.
pub mod has {
    pub const NODE: u8 = 1;
    pub const LATENCY: u8 = 2;
    pub const BYTES: u8 = 4;
}
