//! What happened, as a hash that two runs of one seed must share, and as text for whoever asks.

#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    print: bool,
    /// The step that is being taken.
    pub(crate) step: u64,
}

impl Trace {
    pub(crate) fn new(print: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, print, step: 0 }
    }

    pub(crate) fn note(&mut self, what: &str) {
        if self.print {
            eprintln!("{:4} {what}", self.step);
        }
        for byte in what.bytes().chain([b'\n']) {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}
