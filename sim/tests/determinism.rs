//! The same seed is the same run, down to the last byte on the disk.

use reveille_sim::{Options, run};

#[test]
fn a_seed_run_twice_leaves_the_same_trace() {
    for seed in 0..12 {
        for lag in [false, true] {
            for (wakes, deliveries) in [(false, false), (true, false), (false, true)] {
                let options = Options { lag, wakes, deliveries, ..Options::default() };
                let first = run(seed, options).unwrap();
                let second = run(seed, options).unwrap();
                assert_eq!(first, second, "seed {seed}, {options:?}");
            }
        }
    }
}

#[test]
fn seeds_differ() {
    let one = run(1, Options::default()).unwrap();
    let two = run(2, Options::default()).unwrap();
    assert_ne!(one.hash, two.hash);
}
