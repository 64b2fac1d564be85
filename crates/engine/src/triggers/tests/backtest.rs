//! Backtests: which changes they look at, and where they end.

use super::*;
use crate::limits::{BACKTEST_MS_MAX, SCAN_SLICE};
use crate::testing::TickingClock;
use crate::triggers::backtest::{Backtest, BacktestReport, run};

fn backtest(world: &World, from: Millis, after: Option<u64>, is_wanted: bool) -> BacktestReport {
    let test = Backtest {
        tenant: world.tenant.clone(),
        from,
        to: Millis::NEVER,
        after,
        draft: define(json!({})),
        live: None,
    };
    // There is time for one change.
    let clock = TickingClock::new(if is_wanted { BACKTEST_MS_MAX } else { 0 });
    run(&world.bench.reader(), &clock, &test, &mut 0, &|| is_wanted).unwrap()
}

/// What came before the time has once used up all of the time there is, and what the report then
/// said was that there are no changes.
#[test]
fn a_backtest_begins_at_its_time_however_much_came_before() {
    let mut world = World::new();
    for number in 0..3 * SCAN_SLICE {
        world.write(vec![set(&format!("orders/o{number}"), json!({}))]);
    }
    let from = Millis(world.bench.now.0 + 3_600_000);
    world.bench.now = from;
    for number in 0..3 {
        world.write(vec![set(&format!("orders/late{number}"), json!({}))]);
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let report = backtest(&world, from, after, true);
        seen.extend(report.samples.iter().map(|it| it.path.to_string()));
        after = report.next_after;
        if after.is_none() {
            break;
        }
        assert_eq!(report.changes, 1);
    }
    assert_eq!(seen, ["orders/late0", "orders/late1", "orders/late2"]);
    let later = backtest(&world, Millis(from.0 + 1), None, true);
    assert_eq!((later.changes, later.next_after), (0, None));
}

#[test]
fn a_backtest_that_nobody_waits_for_ends() {
    let mut world = World::new();
    for number in 0..3 {
        world.write(vec![set(&format!("orders/o{number}"), json!({}))]);
    }
    let report = backtest(&world, Millis(0), None, false);
    assert_eq!((report.changes, report.next_after), (1, Some(1)));
}
