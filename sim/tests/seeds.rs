//! Some seeds of the simulator in every test run; `reveille-sim` runs as many as one likes.

use reveille_sim::{Coverage, Options, run, world};

fn options(name: &str) -> Options {
    Options { world: world(name).expect("a world"), ..Options::default() }
}

fn pass(seeds: std::ops::Range<u64>, options: Options) -> Coverage {
    let mut total = Coverage::default();
    for seed in seeds {
        match run(seed, options) {
            Ok(report) => total.add(&report.coverage),
            Err(failure) => panic!("{failure:#?}"),
        }
    }
    total
}

#[test]
fn fifty_seeds_keep_every_promise_and_leave_nothing_out() {
    let coverage = pass(100..150, Options::default());
    assert!(coverage.crashes > 500 && coverage.lost > 50 && coverage.kept > 20, "{coverage:?}");
    assert!(coverage.refused > 5 && coverage.stale > 50, "{coverage:?}");
    assert!(coverage.timers > 500 && coverage.reads > 500, "{coverage:?}");
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
    let coverage = pass(200..250, options("wakes"));
    assert!(coverage.crashes > 200 && coverage.lost > 20 && coverage.kept > 10, "{coverage:?}");
    assert!(coverage.attempts > 1_000 && coverage.timers > 2_000, "{coverage:?}");
}

#[test]
fn events_are_delivered_across_crashes() {
    let coverage = pass(250..300, options("deliveries"));
    assert!(coverage.crashes > 200 && coverage.lost > 20 && coverage.kept > 10, "{coverage:?}");
    assert!(
        coverage.attempts > 2_000 && coverage.timers > 2_000 && coverage.reads > 200,
        "{coverage:?}"
    );
    pass(300..320, Options { lag: true, ..options("deliveries") });
}

#[test]
fn a_face_that_no_server_has_keeps_its_promises_across_crashes() {
    let coverage = pass(320..370, options("reminders"));
    assert!(coverage.crashes > 150 && coverage.lost > 20 && coverage.kept > 10, "{coverage:?}");
    assert!(
        coverage.attempts > 1_500 && coverage.timers > 2_000 && coverage.reads > 50,
        "{coverage:?}"
    );
    pass(370..390, Options { lag: true, ..options("reminders") });
}

#[test]
fn nothing_leaves_to_whoever_may_not_read_it_across_crashes() {
    let coverage = pass(500..550, options("facts"));
    assert!(coverage.crashes > 150 && coverage.lost > 20 && coverage.kept > 5, "{coverage:?}");
    assert!(coverage.attempts > 1_000 && coverage.timers > 1_000, "{coverage:?}");
    pass(550..570, Options { lag: true, ..options("facts") });
}

#[test]
fn transactions_are_there_whole_or_not_at_all() {
    let coverage = pass(400..450, options("documents"));
    assert!(coverage.crashes > 150 && coverage.lost > 20 && coverage.kept > 5, "{coverage:?}");
    assert!(coverage.answers > 5_000 && coverage.timers > 1_000, "{coverage:?}");
    pass(450..470, Options { lag: true, ..options("documents") });
    pass(470..490, Options { unsynced: true, ..options("documents") });
}

#[test]
fn every_change_is_told_to_whom_it_is_owed_and_in_order() {
    let coverage = pass(500..550, options("triggers"));
    assert!(coverage.crashes > 100 && coverage.lost > 10 && coverage.kept > 5, "{coverage:?}");
    assert!(coverage.attempts > 250 && coverage.timers > 500, "{coverage:?}");
    pass(550..560, Options { lag: true, ..options("triggers") });
    pass(560..570, Options { failover: true, ..options("triggers") });
}

#[test]
fn partitions_keep_their_promises_side_by_side() {
    let coverage = pass(320..350, options("partitions"));
    assert!(coverage.crashes > 100 && coverage.lost > 10 && coverage.kept > 5, "{coverage:?}");
    assert!(coverage.attempts > 1_000 && coverage.timers > 500, "{coverage:?}");
}

#[test]
fn whoever_takes_over_knows_everything_that_was_acknowledged() {
    let mut coverage = pass(350..370, Options { failover: true, ..Options::default() });
    for name in ["wakes", "deliveries", "documents", "facts"] {
        coverage.add(&pass(370..385, Options { failover: true, ..options(name) }));
    }
    assert!(coverage.takeovers > 200 && coverage.refused > 100, "{coverage:?}");
    assert!(coverage.lost > 10 && coverage.kept > 10, "{coverage:?}");
    assert!(coverage.attempts > 500 && coverage.timers > 500, "{coverage:?}");
}
