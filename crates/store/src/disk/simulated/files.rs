//! The files of a simulated disk: what programs see, what is durable, and what is in between.

use std::collections::{BTreeMap, BTreeSet};

use super::Random;

const SECTOR: u64 = 512;

#[derive(Default)]
pub(super) struct Files {
    inodes: BTreeMap<u64, Inode>,
    next_inode: u64,
    /// The directory as programs see it.
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// What leads from the durable directory to the visible one.
    directory_changes: Vec<DirectoryChange>,
    /// Writes so far; tells the last one from those before.
    writes: u64,
}

#[derive(Default)]
struct Inode {
    /// What programs read.
    visible: Vec<u8>,
    /// What a crash certainly leaves.
    durable: Vec<u8>,
    /// By sector, every content it had since the last sync, oldest first.
    unsynced: BTreeMap<u64, Vec<SectorContent>>,
}

struct SectorContent {
    write: u64,
    bytes: Vec<u8>,
}

enum DirectoryChange {
    Create(String, u64),
    Rename(String, String),
    Remove(String),
}

/// The extremes are rare by chance and so are chosen on purpose.
#[derive(Clone, Copy)]
enum CrashSeverity {
    LoseAll,
    KeepAll,
    Mixed,
}

impl Files {
    pub(super) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn find(&self, name: &str) -> Option<u64> {
        self.names.get(name).copied()
    }

    /// The sum of the lengths of all files that have a name.
    pub(super) fn used(&self) -> u64 {
        self.names.values().map(|inode| self.len(*inode)).sum()
    }

    pub(super) fn len(&self, inode: u64) -> u64 {
        self.inodes.get(&inode).map_or(0, |inode| inode.visible.len() as u64)
    }

    pub(super) fn create(&mut self, name: &str) -> u64 {
        self.next_inode += 1;
        let inode = self.next_inode;
        self.inodes.insert(inode, Inode::default());
        self.change(DirectoryChange::Create(name.to_owned(), inode));
        inode
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.change(DirectoryChange::Rename(from.to_owned(), to.to_owned()));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.change(DirectoryChange::Remove(name.to_owned()));
    }

    pub(super) fn sync_dir(&mut self) {
        self.directory_changes.clear();
        self.durable_names.clone_from(&self.names);
    }

    pub(super) fn read(&self, inode: u64, buf: &mut [u8], at: u64) -> usize {
        let visible = self.inodes.get(&inode).map_or(&[][..], |inode| &inode.visible);
        let from = visible.get(at as usize..).unwrap_or(&[]);
        let count = from.len().min(buf.len());
        for (to, byte) in buf.iter_mut().zip(from) {
            *to = *byte;
        }
        count
    }

    pub(super) fn write(&mut self, inode: u64, bytes: &[u8], at: u64) {
        self.writes += 1;
        let write = self.writes;
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.write(write, bytes, at);
        }
    }

    pub(super) fn sync(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            for (sector, contents) in std::mem::take(&mut inode.unsynced) {
                if let Some(last) = contents.last() {
                    put(&mut inode.durable, &last.bytes, sector * SECTOR);
                }
            }
        }
    }

    /// Forgets that data waits to be saved: it stays visible and will not survive a crash.
    pub(super) fn drop_unsynced(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.unsynced.clear();
        }
    }

    pub(super) fn flip_bit(&mut self, name: &str, byte: u64, bit: u8) -> bool {
        let inode = self.names.get(name).and_then(|inode| self.inodes.get_mut(inode));
        let Some(inode) = inode else { return false };
        let mask = 1 << (bit % 8);
        let mut flipped = false;
        for image in [&mut inode.visible, &mut inode.durable] {
            if let Some(byte) = image.get_mut(byte as usize) {
                *byte ^= mask;
                flipped = true;
            }
        }
        flipped
    }

    pub(super) fn crash(&mut self, random: &mut Random) {
        let severity = match random.below(4) {
            0 => CrashSeverity::LoseAll,
            1 => CrashSeverity::KeepAll,
            _ => CrashSeverity::Mixed,
        };
        self.crash_names(random);
        self.names.clone_from(&self.durable_names);
        let names = &self.names;
        self.inodes.retain(|inode, _| names.values().any(|named| named == inode));
        for inode in self.inodes.values_mut() {
            inode.crash(severity, self.writes, random);
        }
    }

    /// In half of all crashes a prefix of the changes survives, as where they are journaled; else
    /// any of them, but none that follows, for the same name, one that is lost.
    fn crash_names(&mut self, random: &mut Random) {
        let changes = std::mem::take(&mut self.directory_changes);
        let in_order = random.one_in(2);
        let prefix = random.below(changes.len() as u64 + 1) as usize;
        let mut lost = BTreeSet::new();
        for (index, change) in changes.iter().enumerate() {
            let survives = if in_order { index < prefix } else { random.one_in(2) };
            if survives && change.names().all(|name| !lost.contains(name)) {
                change.apply(&mut self.durable_names);
            } else {
                lost.extend(change.names());
            }
        }
    }

    fn change(&mut self, change: DirectoryChange) {
        change.apply(&mut self.names);
        self.directory_changes.push(change);
    }
}

impl DirectoryChange {
    fn names(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            DirectoryChange::Create(name, _) | DirectoryChange::Remove(name) => (name, None),
            DirectoryChange::Rename(from, to) => (from, Some(to)),
        };
        std::iter::once(first).chain(second).map(String::as_str)
    }

    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            DirectoryChange::Create(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            DirectoryChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            DirectoryChange::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

impl Inode {
    fn write(&mut self, write: u64, bytes: &[u8], at: u64) {
        put(&mut self.visible, bytes, at);
        let end = at + bytes.len() as u64;
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            let bytes = sector_of(&self.visible, sector).to_vec();
            self.unsynced.entry(sector).or_default().push(SectorContent { write, bytes });
        }
    }

    fn crash(&mut self, severity: CrashSeverity, last_write: u64, random: &mut Random) {
        for (sector, contents) in std::mem::take(&mut self.unsynced) {
            let choice = match severity {
                CrashSeverity::LoseAll => 0,
                CrashSeverity::KeepAll => contents.len() as u64,
                CrashSeverity::Mixed => random.below(contents.len() as u64 + 1),
            };
            let kept = choice.checked_sub(1).and_then(|index| contents.get(index as usize));
            let Some(kept) = kept else { continue };
            let mut bytes = kept.bytes.as_slice();
            if kept.write == last_write && random.one_in(4) {
                let cut = random.below(bytes.len() as u64) as usize;
                bytes = bytes.get(..cut).unwrap_or(bytes);
            }
            put(&mut self.durable, bytes, sector * SECTOR);
        }
        self.visible.clone_from(&self.durable);
    }
}

/// Overwrites `image` from `at`, growing it with zeros as far as needed.
fn put(image: &mut Vec<u8>, bytes: &[u8], at: u64) {
    let at = at as usize;
    let end = at + bytes.len();
    if image.len() < end {
        image.resize(end, 0);
    }
    if let Some(to) = image.get_mut(at..end) {
        to.copy_from_slice(bytes);
    }
}

fn sector_of(image: &[u8], sector: u64) -> &[u8] {
    let start = (sector * SECTOR) as usize;
    let end = image.len().min(start + SECTOR as usize);
    image.get(start..end).unwrap_or(&[])
}
