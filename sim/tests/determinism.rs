//! The same seed is the same run, down to the last byte on the disk.

use reveille_sim::{Options, WORLDS, run};

#[test]
fn a_seed_run_twice_leaves_the_same_trace() {
    for seed in 0..12 {
        for lag in [false, true] {
            for world in &WORLDS {
                let options = Options { world, lag, ..Options::default() };
                let first = run(seed, options).unwrap();
                let second = run(seed, options).unwrap();
                assert_eq!(first, second, "seed {seed}, {options:?}");
            }
        }
    }
}

#[test]
fn so_does_one_with_machines_that_take_over() {
    for seed in 0..6 {
        for world in &WORLDS {
            let options = Options { world, failover: true, ..Options::default() };
            let first = run(seed, options).unwrap();
            assert_eq!(first, run(seed, options).unwrap(), "seed {seed}, {options:?}");
        }
    }
}

#[test]
fn seeds_differ() {
    for world in &WORLDS {
        let options = Options { world, ..Options::default() };
        assert_ne!(run(1, options).unwrap().hash, run(2, options).unwrap().hash, "{options:?}");
    }
}
