//! What kind of run a seed is: how large, how unlucky, how late.

use crate::Options;
use crate::random::Random;

/// The character of a run.
#[derive(Debug, Clone)]
pub(crate) struct Mode {
    /// Length of a log segment.
    pub(crate) segment_bytes: u64,
    /// Whether commits are synced; without, a loss of power may take the newest of them.
    pub(crate) sync: bool,
    /// What the log may put into the overlay when it is replayed.
    pub(crate) replay_bytes: usize,
    /// Weight of applying and checkpointing, from hardly ever to all the time.
    pub(crate) keeping: u64,
    /// Weight of crashes and faults.
    pub(crate) faults: u64,
    /// Whether the disk fills up now and then.
    pub(crate) fills: bool,
    /// Below this the server is read-only.
    pub(crate) min_free: u64,
    /// Weight of committing: low lets batches and the fetched grow old.
    pub(crate) commits: u64,
    /// Weight of the passing of time.
    pub(crate) time: u64,
    /// Weight of deletions.
    pub(crate) deletes: u64,
    pub(crate) clients: usize,
    pub(crate) paths: usize,
    /// The longest filler of a payload.
    pub(crate) filler: u64,
    pub(crate) steps: u64,
}

impl Mode {
    pub(crate) fn of(random: &mut Random, options: Options) -> Mode {
        let lag = random.one_in(4) || options.lag;
        let fills = random.one_in(4);
        // Streams of many chunks, and runs that the table takes in several portions.
        let large = random.one_in(12);
        let segment_bytes =
            if large { 512 << 10 } else { *random.pick(&[8, 12, 16, 32, 64]) << 10 };
        Mode {
            segment_bytes,
            sync: !options.unsynced,
            replay_bytes: *random.pick(&[1, 2_000, 20_000, 1 << 20]),
            keeping: if lag { 1 } else { *random.pick(&[8, 20, 60]) },
            faults: *random.pick(&[1, 2, 5, 12]),
            fills,
            min_free: if fills { segment_bytes * random.below(3) } else { 0 },
            commits: *random.pick(&[20, 80, 160]),
            time: *random.pick(&[1, 4, 20]),
            deletes: *random.pick(&[1, 4, 12]),
            clients: random.index(8) + 1,
            paths: random.index(6) + 2,
            filler: if large { 60_000 } else { *random.pick(&[8, 60, 300, 1_200]) },
            steps: random.between(2_000, 10_000),
        }
    }

    /// What a batch may weigh so that it surely fits into one record.
    pub(crate) fn batch_weight_max(&self) -> u64 {
        (self.segment_bytes - 4096) * 3 / 4
    }
}
