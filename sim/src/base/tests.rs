//! A world in miniature: two partitions on one machine, a third on another. Whatever was
//! acknowledged is there, in its partition and in no other.

use std::collections::BTreeSet;

use reveille_core::stream::create::Create;
use reveille_core::{StreamPath, Tenant};
use reveille_engine::streams::create::CreateStream;
use reveille_schema::keys;

use super::engine::{self, EngineSettings, Timer};
use super::storage::LocalStorage;
use super::*;
use crate::Options;

const MACHINES: [usize; 3] = [0, 0, 1];

struct Registers {
    base: Base<Registers>,
    number: u64,
    acknowledged: BTreeSet<(usize, StreamPath)>,
    crashes: [u64; MACHINES.len()],
}

#[derive(Debug)]
struct CreateRegister {
    partition: usize,
    path: StreamPath,
}

#[derive(Debug)]
struct TimerRequest(Timer);

fn key(path: &StreamPath) -> bytes::Bytes {
    keys::stream(&Tenant::default_tenant(), path)
}

impl Request<Registers> for CreateRegister {
    fn call(&self) -> WorldCall<Registers> {
        let (tenant, path) = (Tenant::default_tenant(), self.path.clone());
        let command = CreateStream { tenant, path, request: Create::default(), anchor: None };
        engine::call(command, |outcome| outcome.map(drop).map_err(drop))
    }

    fn weight(&self) -> u64 {
        1_000
    }

    fn answered(
        self: Box<Self>,
        world: &mut Registers,
        _origin: Origin,
        outcome: Outcome<Registers>,
    ) -> CheckResult {
        if outcome.is_ok() {
            world.acknowledged.insert((self.partition, self.path));
        }
        Ok(())
    }
}

impl Request<Registers> for TimerRequest {
    fn call(&self) -> WorldCall<Registers> {
        engine::call(self.0.command.clone(), |outcome| outcome.map(drop).map_err(drop))
    }

    fn weight(&self) -> u64 {
        1_000
    }

    fn answered(
        self: Box<Self>,
        _world: &mut Registers,
        _origin: Origin,
        _outcome: Outcome<Registers>,
    ) -> CheckResult {
        Ok(())
    }
}

impl World for Registers {
    type Answer = ();
    type Error = ();

    const ACTIONS: ActionTable<Registers> = &[(5, Registers::audit)];
    const TURNS_MAX: u32 = 1_000;

    fn new(mut setup: Setup) -> Registers {
        let mode = Mode::of_large_commands(&mut setup.random, setup.options);
        let storages = MACHINES.map(|_| LocalStorage::new(&mut setup.random, &mode));
        let mut base = setup.base_without_partitions(mode);
        for (storage, machine) in storages.into_iter().zip(MACHINES) {
            base.add_partition(Box::new(storage), machine);
        }
        Registers { base, number: 0, acknowledged: BTreeSet::new(), crashes: [0; MACHINES.len()] }
    }

    fn base(&self) -> &Base<Registers> {
        &self.base
    }

    fn base_mut(&mut self) -> &mut Base<Registers> {
        &mut self.base
    }

    fn engine_settings(&mut self, _partition: usize) -> EngineSettings {
        EngineSettings::default()
    }

    fn invent(&mut self) -> CheckResult {
        self.number += 1;
        let partition = self.base.pick_partition();
        let path = StreamPath::parse(&format!("/{}", self.number)).expect("a path");
        let request = CreateRegister { partition, path };
        self.base.run_on(partition, Origin::Client, Box::new(request));
        Ok(())
    }

    fn timer_request(&mut self, timer: Timer) -> Box<dyn Request<Registers>> {
        Box::new(TimerRequest(timer))
    }

    fn batch_durable(&mut self, _partition: usize, _batch: BatchInfo) -> CheckResult {
        Ok(())
    }

    fn restarted(&mut self, partition: usize) -> CheckResult {
        self.crashes[partition] += 1;
        self.audit()
    }

    fn audit(&mut self) -> CheckResult {
        for (partition, path) in &self.acknowledged {
            for (at, other) in self.base.partitions.iter().enumerate() {
                let found =
                    other.engine().reader().get(&key(path)).map_err(raw_state::unreadable)?;
                if found.is_some() != (at == *partition) {
                    let what = format!("{path} of partition {partition} is wrong in {at}");
                    return Err(violation(what));
                }
            }
        }
        Ok(())
    }

    fn finale(&mut self) -> CheckResult {
        finale::heal(self)?;
        finale::settle(self)?;
        crash::crash_cleanly(self)?;
        finale::settle(self)
    }
}

#[test]
fn partitions_of_a_machine_crash_together_and_keep_what_is_theirs() {
    let mut coverage = Coverage::default();
    for seed in 0..40 {
        match run::<Registers>(seed, Options::default()) {
            Ok(report) => coverage.add(&report.coverage),
            Err(failure) => panic!("{failure:#?}"),
        }
    }
    assert!(coverage.crashes > 100 && coverage.answers > 5_000, "{coverage:?}");
}

#[test]
fn a_crash_takes_one_machine_only() {
    let mut world = Registers::new(Setup::new(1, Options::default()));
    crash::start_all(&mut world).unwrap();
    crash::crash(&mut world, 0, crash::CrashKind::Kill).unwrap();
    assert_eq!(world.crashes, [1, 1, 0]);
    crash::crash(&mut world, 1, crash::CrashKind::Kill).unwrap();
    assert_eq!(world.crashes, [1, 1, 1]);
}
