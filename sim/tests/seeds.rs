//! Some seeds of the simulator in every test run; `reveille-sim` runs as many as one likes.

use reveille_sim::{Options, Tally, run};

fn pass(seeds: std::ops::Range<u64>, options: Options) -> Tally {
    let mut total = Tally::default();
    for seed in seeds {
        match run(seed, options) {
            Ok(report) => total.add(&report.tally),
            Err(failure) => panic!("{failure:#?}"),
        }
    }
    total
}

#[test]
fn fifty_seeds_keep_every_promise_and_leave_nothing_out() {
    let tally = pass(100..150, Options::default());
    assert!(tally.crashes > 500 && tally.lost > 50 && tally.kept > 20, "{tally:?}");
    assert!(tally.refused > 5 && tally.stale > 50, "{tally:?}");
    assert!(tally.obligations > 500 && tally.reads > 500, "{tally:?}");
}

#[test]
fn a_table_that_lags_changes_nothing() {
    pass(150..175, Options { lag: true, ..Options::default() });
}

#[test]
fn without_syncs_only_the_newest_is_lost() {
    pass(175..200, Options { unsynced: true, ..Options::default() });
}

#[test]
fn wakes_are_told_and_kept_across_crashes() {
    let tally = pass(200..250, Options { wakes: true, ..Options::default() });
    assert!(tally.crashes > 200 && tally.lost > 20 && tally.kept > 10, "{tally:?}");
    assert!(tally.wakes > 1_000 && tally.obligations > 2_000, "{tally:?}");
}

#[test]
fn events_are_delivered_across_crashes() {
    let tally = pass(250..300, Options { deliveries: true, ..Options::default() });
    assert!(tally.crashes > 200 && tally.lost > 20 && tally.kept > 10, "{tally:?}");
    assert!(tally.wakes > 2_000 && tally.obligations > 2_000 && tally.reads > 200, "{tally:?}");
    pass(300..320, Options { deliveries: true, lag: true, ..Options::default() });
}
