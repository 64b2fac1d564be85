//! Who uses how much of the machine, and who has to wait for others.
//!
//! A tenant that is alone may use everything, and those who all use much share everything. While
//! there is somebody who does not, those who use much share a part of the processors, and the rest
//! is there for everybody else: whoever sends an event now and then finds a machine that is not
//! busy. While the process as a whole uses much more than that part, because the table is being
//! brought up or others are busy after all, those who use much step back further.
//!
//! What a piece of work costs is not known beforehand; it is what the process uses, spread over the
//! work that was done meanwhile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reveille_core::{Millis, Tenant};
use tokio::sync::Semaphore;

use crate::doors::Clock;
use crate::error::Unavailable;

/// Work: an event or an append that is taken in.
pub const TAKEN_IN: u64 = 1;
/// Work: an attempt that is made.
pub const ATTEMPT: u64 = 2;

/// Those who use much get one processor in so many.
const PART: u64 = 6;
/// And this much less while the process as a whole uses more than one in so many.
const PRESSED: u64 = 4;
const BUSY_PART: u64 = 3;
/// For how long less than that, or more, is remembered.
const LEFT_MS: u64 = 2;
const EXCEEDED_MS: u64 = 4;

/// Whoever did something within this is active.
const ACTIVE_MS: u64 = 1_000;
/// The cost of work is looked at this often; whoever waits asks again after this at the latest.
const LOOK_MS: u64 = 100;
/// With less work than this the cost of it cannot be told, only that it is not higher.
const LOOK_WORK: u64 = 64;
/// Reads and much else have no price, and yet somebody pays for them: not more than this.
const UNIT_NS_MAX: u64 = 500_000;
/// What a tenant may use at once, in milliseconds of its share; and what it owes at most when
/// others come while it was alone.
const BURST_MS: u64 = 20;
/// What it can owe while there are others: a large request is paid for later.
const OWED_MS: u64 = 2_000;
/// No request waits longer than this for its turn.
const WAIT_MAX_MS: u64 = 10_000;

/// The accounts of all tenants.
pub struct Fairness {
    clock: Arc<dyn Clock>,
    ledger: Mutex<Ledger>,
}

struct Ledger {
    /// Processor time that there is, in microseconds for each millisecond.
    whole: u64,
    accounts: HashMap<Tenant, Account, foldhash::fast::RandomState>,
    /// What a unit of work costs, in nanoseconds.
    unit_ns: u64,
    /// Work since the last look.
    work: u64,
    looked_at: Millis,
    used_us: u64,
    /// Tenants that are active, and those among them that had to wait, at the last look.
    active: usize,
    heavy: usize,
    /// What is left of what the process as a whole may use before it is busy, in microseconds.
    left: i64,
    measured_at: Millis,
    measured_us: u64,
}

struct Account {
    /// Processor time in microseconds; less than nothing is owed.
    balance: i64,
    /// What a request of this tenant costs, more or less: paid before it is read.
    typical: i64,
    filled_at: Millis,
    active_at: Millis,
    /// When it was last made to wait.
    waited_at: Option<Millis>,
    /// Requests that wait stand in a line, and the first of them asks.
    line: Arc<Semaphore>,
}

impl Fairness {
    pub fn new(clock: Arc<dyn Clock>) -> Fairness {
        let whole = 1_000 * u64::try_from(clock.processors()).unwrap_or(1);
        let (now, used_us) = (clock.now(), used_us(clock.as_ref()));
        Fairness { clock, ledger: Mutex::new(Ledger::new(whole, now, used_us)) }
    }

    /// Waits until it is a tenant's turn to have a request read and decided.
    pub async fn enter(&self, tenant: &Tenant) -> Result<(), Unavailable> {
        let (now, line) = {
            let (now, mut ledger) = self.look();
            if ledger.enter(tenant, now, false).is_ok() {
                return Ok(());
            }
            (now, ledger.account(tenant, now).line.clone())
        };
        let turn = async {
            let first = line.acquire().await;
            while let Err(until) = self.ask(tenant) {
                self.clock.sleep_until(until).await;
            }
            drop(first);
        };
        tokio::select! {
            biased;
            () = turn => Ok(()),
            () = self.clock.sleep_until(now + WAIT_MAX_MS) => Err(Unavailable::Busy),
        }
    }

    /// For the first of those who wait.
    fn ask(&self, tenant: &Tenant) -> Result<(), Millis> {
        let (now, mut ledger) = self.look();
        ledger.enter(tenant, now, true)
    }

    /// Counts the work of a request that was let in.
    pub fn request(&self, tenant: &Tenant, work: u64) {
        let (now, mut ledger) = self.look();
        ledger.request(tenant, work, now);
    }

    /// Counts an attempt if it may be made now; says when to ask again if not.
    pub fn try_attempt(&self, tenant: &Tenant) -> Result<(), Millis> {
        let (now, mut ledger) = self.look();
        ledger.attempt(tenant, now)
    }

    /// Counts work that cannot wait.
    pub fn count(&self, tenant: &Tenant, work: u64) {
        let (now, mut ledger) = self.look();
        ledger.count(tenant, work, now);
    }

    fn look(&self) -> (Millis, MutexGuard<'_, Ledger>) {
        let now = self.clock.now();
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if now > ledger.measured_at {
            ledger.pass(now, used_us(self.clock.as_ref()));
        }
        (now, ledger)
    }
}

fn used_us(clock: &dyn Clock) -> u64 {
    clock.used().map_or(0, |used| u64::try_from(used.as_micros()).unwrap_or(u64::MAX))
}

impl Ledger {
    fn new(whole: u64, now: Millis, used_us: u64) -> Ledger {
        Ledger {
            whole,
            accounts: HashMap::default(),
            unit_ns: 0,
            work: 0,
            looked_at: now,
            used_us,
            active: 0,
            heavy: 0,
            left: 0,
            measured_at: now,
            measured_us: used_us,
        }
    }

    /// Time has passed, and the process has used so much since it began.
    fn pass(&mut self, now: Millis, used_us: u64) {
        self.measure(now, used_us);
        if now.since(self.looked_at) >= LOOK_MS {
            self.look(now, used_us);
        }
    }

    /// Lets a request in, or says when to ask again. Whoever is not the first of those that wait
    /// does not get in before them.
    fn enter(&mut self, tenant: &Tenant, now: Millis, first: bool) -> Result<(), Millis> {
        self.may(tenant, now, first)?;
        let account = self.account(tenant, now);
        account.balance = account.balance.saturating_sub(account.typical);
        Ok(())
    }

    /// Counts the work of a request that was let in: what it paid beforehand is set off.
    fn request(&mut self, tenant: &Tenant, work: u64, now: Millis) {
        let cost = self.cost(work);
        let account = self.account(tenant, now);
        account.balance = account.balance.saturating_add(account.typical);
        account.typical = (3 * account.typical + cost) / 4;
        self.count(tenant, work, now);
    }

    fn attempt(&mut self, tenant: &Tenant, now: Millis) -> Result<(), Millis> {
        self.may(tenant, now, true)?;
        self.count(tenant, ATTEMPT, now);
        Ok(())
    }

    fn may(&mut self, tenant: &Tenant, now: Millis, first: bool) -> Result<(), Millis> {
        let share = self.share();
        let has_fan_out = self.active > 1;
        let account = self.account(tenant, now);
        account.active_at = now;
        account.fill(share, now);
        let behind = !first && account.line.available_permits() == 0;
        if has_fan_out && (behind || account.balance < 0) {
            account.waited_at = Some(now);
            let owed = account.balance.min(0).unsigned_abs();
            return Err(now + owed.div_ceil(share).clamp(1, LOOK_MS));
        }
        Ok(())
    }

    fn count(&mut self, tenant: &Tenant, work: u64, now: Millis) {
        let cost = self.cost(work);
        let owed_ms = if self.active > 1 { OWED_MS } else { BURST_MS };
        let most = signed(owed_ms * self.share());
        self.work += work;
        let account = self.account(tenant, now);
        account.active_at = now;
        let floor = account.balance.min(-most);
        account.balance = account.balance.saturating_sub(cost).max(floor);
    }

    fn cost(&self, work: u64) -> i64 {
        signed(work.saturating_mul(self.unit_ns) / 1_000)
    }

    /// What everybody who uses much may use, in microseconds for each millisecond.
    fn share(&self) -> u64 {
        let among_themselves = self.active > 1 && self.active <= self.heavy;
        let all = match among_themselves {
            true => self.whole,
            false if self.left < 0 => self.whole / PART / PRESSED,
            false => self.whole / PART,
        };
        let heavy = u64::try_from(self.heavy).unwrap_or(u64::MAX);
        (all / heavy.max(1)).max(1)
    }

    fn account(&mut self, tenant: &Tenant, now: Millis) -> &mut Account {
        if !self.accounts.contains_key(tenant) {
            self.active += 1;
            let account = Account {
                balance: 0,
                typical: 0,
                filled_at: now,
                active_at: now,
                waited_at: None,
                line: Arc::new(Semaphore::new(1)),
            };
            self.accounts.insert(tenant.clone(), account);
        }
        self.accounts.get_mut(tenant).expect("it was just put there")
    }

    /// Looks at what the work since the last look has cost, and at who is active.
    fn look(&mut self, now: Millis, used_us: u64) {
        let spent_ns = used_us.saturating_sub(self.used_us).saturating_mul(1_000);
        if let Some(unit_ns) = spent_ns.checked_div(self.work) {
            self.unit_ns = match self.unit_ns {
                known if self.work < LOOK_WORK => known.min(unit_ns),
                0 => unit_ns,
                // One look may be at a moment when others were busy: it counts for a quarter.
                known => (3 * known + unit_ns) / 4,
            };
            self.unit_ns = self.unit_ns.min(UNIT_NS_MAX);
        }
        self.work = 0;
        self.looked_at = now;
        self.used_us = used_us;
        let share = self.share();
        for account in self.accounts.values_mut() {
            account.fill(share, now);
        }
        let recent = |at: Millis| now.since(at) < ACTIVE_MS;
        // Whoever owes something is remembered until it is paid.
        self.accounts.retain(|_, it| recent(it.active_at) || it.balance < 0);
        self.active = self.accounts.values().filter(|it| recent(it.active_at)).count();
        self.heavy = self.accounts.values().filter(|it| it.waited_at.is_some_and(recent)).count();
    }

    /// Measures how much the process as a whole uses.
    fn measure(&mut self, now: Millis, used_us: u64) {
        let part = self.whole / BUSY_PART;
        let more = signed(now.since(self.measured_at).min(LOOK_MS) * part);
        let less = signed(used_us.saturating_sub(self.measured_us));
        let left = self.left.saturating_add(more).saturating_sub(less);
        self.left = left.clamp(-signed(EXCEEDED_MS * part), signed(LEFT_MS * part));
        (self.measured_at, self.measured_us) = (now, used_us);
    }
}

impl Account {
    fn fill(&mut self, share: u64, now: Millis) {
        let more = signed(now.since(self.filled_at).min(OWED_MS) * share);
        self.balance = self.balance.saturating_add(more).min(signed(BURST_MS * share));
        self.filled_at = now;
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with six processors, on which a unit of work takes 50 µs.
    struct World {
        ledger: Ledger,
        now: Millis,
        used_us: u64,
    }

    impl World {
        fn new() -> World {
            World { ledger: Ledger::new(6_000, Millis(0), 0), now: Millis(0), used_us: 0 }
        }

        fn enter(&mut self, tenant: &str, work: u64) -> Result<(), Millis> {
            let tenant = Tenant::parse(tenant).unwrap();
            self.ledger.enter(&tenant, self.now, true)?;
            self.ledger.request(&tenant, work, self.now);
            self.used_us += 50 * work;
            Ok(())
        }

        fn pass(&mut self, millis: u64) {
            self.now = self.now + millis;
            self.ledger.pass(self.now, self.used_us);
        }

        /// Work that each tenant gets done in so many milliseconds, with ten requests of ten
        /// pieces in each of them.
        fn flood(&mut self, tenants: &[&str], millis: u64) -> Vec<u64> {
            let mut done = vec![0; tenants.len()];
            for _ in 0..millis {
                for (tenant, done) in tenants.iter().zip(&mut done) {
                    for _ in 0..10 {
                        *done += if self.enter(tenant, 10).is_ok() { 10 } else { 0 };
                    }
                }
                self.pass(1);
            }
            done
        }
    }

    #[test]
    fn whoever_is_alone_never_waits() {
        let mut world = World::new();
        assert_eq!(world.flood(&["flood"], 2_000), [200_000]);
    }

    #[test]
    fn beside_others_a_flood_gets_its_part_and_they_never_wait() {
        let mut world = World::new();
        world.flood(&["flood"], 1_000);
        let mut done = 0;
        for _ in 0..100 {
            assert_eq!(world.enter("calm", 1), Ok(()));
            done += world.flood(&["flood"], 20)[0];
        }
        // 1,000 µs a millisecond are 20 pieces.
        assert!((38_000..=44_000).contains(&done), "{done}");
    }

    #[test]
    fn those_who_flood_share_their_part() {
        let mut world = World::new();
        let mut done = [0, 0];
        for round in 0..150 {
            assert_eq!(world.enter("calm", 1), Ok(()));
            let more = world.flood(&["one", "two"], 20);
            if round >= 50 {
                done = [done[0] + more[0], done[1] + more[1]];
            }
        }
        // 1,000 µs a millisecond are 20 pieces.
        assert!(done.iter().all(|done| (15_000..=22_000).contains(done)), "{done:?}");
    }

    #[test]
    fn those_who_flood_among_themselves_share_everything() {
        let mut world = World::new();
        world.flood(&["one", "two"], 1_000);
        let done = world.flood(&["one", "two"], 2_000);
        // 3,000 µs a millisecond are 60 pieces.
        assert!(done.iter().all(|done| (108_000..=132_000).contains(done)), "{done:?}");
    }

    #[test]
    fn a_flood_steps_back_while_the_process_is_busy_with_something_else() {
        let mut world = World::new();
        world.flood(&["flood"], 1_000);
        let mut done = [0, 0];
        for round in 0..100 {
            assert_eq!(world.enter("calm", 1), Ok(()));
            for _ in 0..20 {
                let busy = round >= 50;
                world.used_us += if busy { 2_000 } else { 0 };
                done[usize::from(busy)] += world.flood(&["flood"], 1)[0];
            }
        }
        assert!(done[1] * 3 < done[0], "{done:?}");
        assert!(done[1] * 20 > done[0], "{done:?}");
    }

    #[test]
    fn when_the_others_have_gone_a_flood_is_alone_again() {
        let mut world = World::new();
        world.flood(&["flood"], 1_000);
        assert_eq!(world.enter("calm", 1), Ok(()));
        world.flood(&["flood"], 500);
        assert!(world.enter("flood", 100).is_err() || world.enter("flood", 100).is_err());
        world.pass(ACTIVE_MS + LOOK_MS);
        assert_eq!(world.flood(&["flood"], 100), [10_000]);
    }

    #[test]
    fn a_large_request_is_paid_for_later() {
        let mut world = World::new();
        world.flood(&["flood"], 200);
        assert_eq!(world.enter("calm", 1), Ok(()));
        world.pass(BURST_MS * 2);
        assert_eq!(world.enter("flood", 10_000), Ok(()));
        for _ in 0..5 {
            assert!(world.enter("flood", 1).is_err());
            world.pass(LOOK_MS);
        }
        world.pass(LOOK_MS);
        assert_eq!(world.enter("flood", 1), Ok(()));
    }

    #[test]
    fn debt_is_remembered_and_ends() {
        let mut world = World::new();
        world.flood(&["flood"], 200);
        assert_eq!(world.enter("calm", 1), Ok(()));
        world.pass(BURST_MS * 2);
        assert_eq!(world.enter("flood", 100_000), Ok(()));
        let mut waited = 0;
        while world.enter("flood", 1).is_err() {
            assert_eq!(world.enter("calm", 1), Ok(()));
            world.pass(LOOK_MS);
            waited += LOOK_MS;
        }
        // The first look finds the process busy with it.
        assert!((OWED_MS..=OWED_MS + LOOK_MS).contains(&waited), "{waited}");
    }

    #[test]
    fn the_price_of_work_comes_down_when_nothing_else_goes_on() {
        let mut world = World::new();
        // Somebody reads so much that work seems dear.
        world.used_us += 10_000_000;
        world.flood(&["one"], 100);
        assert_eq!(world.ledger.unit_ns, UNIT_NS_MAX);
        for _ in 0..3 {
            assert_eq!(world.enter("one", 1), Ok(()));
            world.pass(LOOK_MS);
        }
        assert_eq!(world.ledger.unit_ns, 50_000);
    }

    #[test]
    fn nobody_passes_those_who_wait() {
        let mut world = World::new();
        let flood = Tenant::parse("flood").unwrap();
        world.flood(&["flood"], 200);
        assert_eq!(world.enter("calm", 1), Ok(()));
        let line = world.ledger.account(&flood, world.now).line.clone();
        let first = line.try_acquire().unwrap();
        world.pass(BURST_MS * 2);
        assert!(world.ledger.enter(&flood, world.now, false).is_err());
        assert_eq!(world.ledger.enter(&flood, world.now, true), Ok(()));
        drop(first);
        assert_eq!(world.ledger.enter(&flood, world.now, false), Ok(()));
    }
}
