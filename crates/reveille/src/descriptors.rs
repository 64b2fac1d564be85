//! How many files and sockets the process may have open, and who may open how many of them.
//!
//! ```text
//! the limit   = a reserve for the process, the log and the table, whoever else wants descriptors
//!             + files of the table that stay open
//!             + calls to webhooks and workers, idle connections included
//!             + connections of clients
//! ```

use reveille_server::CONNECTIONS_MAX;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Standard streams, the runtime, the listener, signals, locks, names, spans.
const PROCESS: usize = 32;
/// The log of a partition, and what its table has open beside its data.
const PARTITION: usize = 16;
/// What a table opens beyond the files that stay open, while it merges them.
const MERGING_MIN: usize = 24;
const MERGING_MAX: usize = 128;
/// Files of all tables that stay open.
const TABLE_FILES_MIN: usize = 16;
const TABLE_FILES_MAX: usize = 900;
/// With fewer there is no use in serving.
const CALLS_MIN: usize = 8;
const CONNECTIONS_MIN: usize = 16;
/// Quick and slow calls have places of their own.
const CALLS_PER_PLACE: usize = 2;

/// Who may open how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    /// Files of all tables that stay open.
    pub(crate) table_files: usize,
    /// Connections of ours to webhooks and workers.
    pub(crate) calls: usize,
    /// Connections of clients.
    pub(crate) connections: usize,
}

/// There are too few to begin with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process may have {limit} files open at once, and {needed} are the fewest that a server \
     with {partitions} partitions can work with; raise the limit (`ulimit -Hn`, `LimitNOFILE=` in a \
     unit of systemd, `--ulimit nofile=` of a container)"
)]
pub(crate) struct TooFewDescriptors {
    limit: usize,
    needed: usize,
    partitions: usize,
}

impl DescriptorBudget {
    /// Divides a limit.
    pub(crate) fn divide(
        limit: usize,
        partitions: usize,
        concurrency: usize,
    ) -> Result<DescriptorBudget, TooFewDescriptors> {
        let partitions = partitions.max(1);
        let needed = reserve(partitions, MERGING_MIN)
            + TABLE_FILES_MIN * partitions
            + CALLS_MIN
            + CONNECTIONS_MIN;
        if limit < needed {
            return Err(TooFewDescriptors { limit, needed, partitions });
        }
        // What is left beyond the least that everybody needs is divided in equal parts, and nobody
        // gets more than there is a use for.
        let more = limit - needed;
        let table_files = (TABLE_FILES_MIN * partitions + more / 8)
            .min(TABLE_FILES_MAX.max(TABLE_FILES_MIN * partitions));
        let merging = (MERGING_MIN + more / 8 / partitions).min(MERGING_MAX);
        let rest = limit - reserve(partitions, merging) - table_files;
        let calls = (rest / 2)
            .min(rest - CONNECTIONS_MIN)
            .min(concurrency.saturating_mul(CALLS_PER_PLACE))
            .max(CALLS_MIN);
        let connections = (rest - calls).min(CONNECTIONS_MAX);
        Ok(DescriptorBudget { table_files, calls, connections })
    }

    /// How many calls may be under way of those that were asked for.
    pub(crate) fn concurrency(&self, wanted: usize) -> usize {
        wanted.min(self.calls / CALLS_PER_PLACE)
    }
}

fn reserve(partitions: usize, merging: usize) -> usize {
    PROCESS + partitions * (PARTITION + merging)
}

/// Raises the limit as far as this process may, and says what it is.
pub(crate) fn raise_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: maximum, maximum };
    let limit = match setrlimit(Resource::Nofile, wanted) {
        Ok(()) => maximum,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays as it is");
            current
        }
    };
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(budget: DescriptorBudget) -> usize {
        budget.table_files + budget.calls + budget.connections
    }

    #[test]
    fn whatever_the_limit_everybody_has_a_part_and_all_of_them_fit() {
        for partitions in [1, 4, 16] {
            for limit in (64..2_000).chain([4_096, 20_000, 65_536, 1 << 20, usize::MAX >> 1]) {
                match DescriptorBudget::divide(limit, partitions, 4_096) {
                    Ok(budget) => {
                        assert!(used(budget) + reserve(partitions, MERGING_MIN) <= limit);
                        assert!(budget.table_files >= TABLE_FILES_MIN * partitions);
                        assert!(budget.calls >= CALLS_MIN, "{limit} {budget:?}");
                        assert!(budget.connections >= CONNECTIONS_MIN, "{limit} {budget:?}");
                    }
                    Err(error) => assert!(limit < 112 + 56 * (partitions - 1), "{error}"),
                }
            }
        }
    }

    #[test]
    fn a_small_limit_is_divided_and_a_large_one_bounded_by_what_is_of_use() {
        let budget = DescriptorBudget::divide(256, 1, 4_096).unwrap();
        assert_eq!(budget, DescriptorBudget { table_files: 34, calls: 66, connections: 66 });
        assert_eq!((budget.concurrency(4_096), budget.concurrency(8)), (33, 8));
        let budget = DescriptorBudget::divide(1 << 20, 1, 4_096).unwrap();
        let large = DescriptorBudget { table_files: 900, calls: 8_192, connections: 16_384 };
        assert_eq!((budget, budget.concurrency(4_096)), (large, 4_096));
        // Few calls leave more for clients.
        let budget = DescriptorBudget::divide(256, 1, 5).unwrap();
        assert_eq!((budget.calls, budget.connections), (10, 122));
    }

    #[test]
    fn with_too_few_there_is_a_sentence() {
        let error = DescriptorBudget::divide(64, 1, 4_096).unwrap_err().to_string();
        assert!(
            error.contains("may have 64 files open") && error.contains("LimitNOFILE"),
            "{error}"
        );
    }
}
