//! A read-ahead window over a segment, so that recovery reads large pieces and holds little.

use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;

const WINDOW_BYTES: usize = 1 << 20;

pub(super) struct Window {
    pub(super) file: Arc<dyn DiskFile>,
    at: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(super) fn new(file: Arc<dyn DiskFile>) -> Window {
        Window { file, at: 0, bytes: Vec::new() }
    }

    /// The `len` bytes at `at`; fewer only at the end of the file.
    pub(super) fn get(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        if !self.holds(at, len) {
            let rest = self.file.len()?.saturating_sub(at);
            let wanted = (len.max(WINDOW_BYTES) as u64).min(rest);
            self.bytes.resize(wanted as usize, 0);
            let read = self.file.read_at(&mut self.bytes, at)?;
            self.bytes.truncate(read);
            self.at = at;
        }
        let start = (at - self.at) as usize;
        let end = self.bytes.len().min(start + len);
        Ok(self.bytes.get(start..end).unwrap_or(&[]))
    }

    fn holds(&self, at: u64, len: usize) -> bool {
        at.checked_sub(self.at).is_some_and(|start| start as usize + len <= self.bytes.len())
    }
}
