//! The knobs of a run: how large, how unlucky, how late. Each world draws its own from the seed.

use super::random::Random;
use crate::Options;

#[derive(Debug, Clone)]
pub(crate) struct Mode {
    pub(crate) segment_bytes: u64,
    /// What a decision writes before it leaves the rest to another; 0 for what a server has.
    pub(crate) slice_bytes: usize,
    /// Whether commits are synced; without, a power cut may take the newest of them.
    pub(crate) sync: bool,
    /// What the log may put into the overlay when it is replayed.
    pub(crate) replay_bytes: usize,
    /// Below this the server is read-only.
    pub(crate) min_free_bytes: u64,

    // Weights of the base's own steps; see `schedule`.
    pub(crate) operations: u64,
    pub(crate) clients: u64,
    /// Low lets batches and what was fetched grow old.
    pub(crate) commits: u64,
    /// Applying and checkpointing: from hardly ever to all the time.
    pub(crate) checkpoints: u64,
    pub(crate) timers: u64,
    pub(crate) time: u64,
    pub(crate) faults: u64,

    pub(crate) fault_weights: FaultWeights,
    /// How much time passes: weights, and less than how many milliseconds.
    pub(crate) time_jumps: &'static [(u64, u64)],
    /// Entries of the due index that are worked off at once.
    pub(crate) timers_at_once: usize,
    /// A decision asks for keys no more often than this.
    pub(crate) fetch_rounds_max: u32,
    pub(crate) clients_max: usize,
    /// Weight of deletions among what clients ask for.
    pub(crate) deletes: u64,
    pub(crate) steps: u64,
}

/// How likely each fault is, if there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultWeights {
    pub(crate) power_cut: u64,
    pub(crate) kill: u64,
    pub(crate) restart: u64,
    pub(crate) interrupt: u64,
    pub(crate) fail_sync: u64,
    pub(crate) fill_disk: u64,
    pub(crate) free_disk: u64,
    pub(crate) fill_write: u64,
    pub(crate) fill_table: u64,
}

impl FaultWeights {
    /// Those of a disk that has room.
    pub(crate) const ROOMY: FaultWeights = FaultWeights {
        power_cut: 3,
        kill: 3,
        restart: 1,
        interrupt: 6,
        fail_sync: 2,
        fill_disk: 0,
        free_disk: 0,
        fill_write: 0,
        fill_table: 0,
    };
}

impl Mode {
    /// Commands that touch much: segments that take the largest batches.
    pub(crate) fn of_large_commands(random: &mut Random, options: Options) -> Mode {
        let lag = random.one_in(4) || options.lag;
        let segment_bytes = *random.pick(&[64, 128, 256]) << 10;
        let fills = random.one_in(4);
        let roomy = FaultWeights::ROOMY;
        let fault_weights = if fills {
            FaultWeights { fill_disk: 3, free_disk: 6, fill_write: 12, fill_table: 3, ..roomy }
        } else {
            roomy
        };
        Mode {
            segment_bytes,
            slice_bytes: *random.pick(&[0, 0, 1, 400, 4_000]),
            sync: true,
            replay_bytes: *random.pick(&[1, 2_000, 20_000, 1 << 20]),
            min_free_bytes: if fills { segment_bytes * random.below(3) } else { 0 },
            operations: 500,
            clients: 90,
            commits: *random.pick(&[40, 120, 300]),
            checkpoints: if lag { 1 } else { *random.pick(&[8, 20, 60]) },
            timers: 60,
            time: *random.pick(&[4, 20, 50]),
            faults: *random.pick(&[1, 2, 6]),
            fault_weights,
            time_jumps: &[(8, 200), (8, 6_000), (3, 60_000), (1, 7_200_000)],
            timers_at_once: *random.pick(&[1, 4, 32, usize::MAX]),
            fetch_rounds_max: 120,
            clients_max: random.index(8) + 2,
            deletes: *random.pick(&[1, 3, 8]),
            steps: random.between(1_000, 6_000),
        }
    }

    /// The same with an outbox: attempts are made and answered beside everything else.
    pub(crate) fn of_attempts(random: &mut Random, options: Options) -> Mode {
        Mode {
            operations: 600,
            clients: 70,
            timers: 80,
            segment_bytes: *random.pick(&[128, 256]) << 10,
            steps: random.between(800, 4_000),
            ..Mode::of_large_commands(random, options)
        }
    }

    /// What a batch may weigh so that it surely fits into one record.
    pub(crate) fn batch_weight_max(&self) -> u64 {
        (self.segment_bytes - 4096) * 3 / 4
    }
}
