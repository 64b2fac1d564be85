//! What happens next: one step after another, in an order that the seed chooses.

use super::errand::Owner;
use super::world::Wakes;
use crate::server::Server;
use crate::world::Checked;

#[derive(Debug, Clone, Copy)]
enum Step {
    Errand,
    Client,
    Take,
    Commit,
    Settle,
    Freeze,
    Apply,
    Checkpoint,
    Seal,
    FillSpares,
    WatchDisk,
    Work,
    Post,
    Answer,
    Act,
    Time,
    Fault,
    Content,
}

impl Wakes {
    /// Lives through the whole run.
    pub(crate) fn run(&mut self) -> Checked {
        self.prepare();
        for _ in 0..self.base.mode.steps {
            self.base.trace.step += 1;
            self.base.tally.steps += 1;
            self.step()?;
        }
        self.finale()
    }

    fn step(&mut self) -> Checked {
        let mode = &self.base.mode;
        let step = self.base.random.weighted(&[
            (500, Step::Errand),
            (90, Step::Client),
            (mode.commits, Step::Take),
            (mode.commits, Step::Commit),
            (mode.keeping / 2, Step::Settle),
            (mode.keeping / 2, Step::Freeze),
            (mode.keeping, Step::Apply),
            (mode.keeping.div_ceil(2), Step::Checkpoint),
            (10, Step::Seal),
            (5, Step::FillSpares),
            (10, Step::WatchDisk),
            (60, Step::Work),
            (60, Step::Post),
            (60, Step::Answer),
            (80, Step::Act),
            (mode.time, Step::Time),
            (mode.faults, Step::Fault),
            (2, Step::Content),
        ]);
        match step {
            Step::Errand => return self.some_errand(),
            Step::Client => self.client(),
            Step::Take => self.take(),
            Step::Commit => {
                let result = self.commit()?;
                return self.survive(result);
            }
            Step::Settle => self.life().shared.state.settle(),
            Step::Freeze => drop(self.life().shared.state.freeze()),
            Step::Apply => {
                let result = self.life_mut().checkpointer.apply();
                return self.survive(result);
            }
            Step::Checkpoint => {
                let result = self.life_mut().checkpointer.checkpoint();
                return self.survive(result);
            }
            Step::Seal => return self.seal(),
            // Failing is not the end: the committer tries again when it needs one.
            Step::FillSpares => drop(self.life().spares.fill(|| {})),
            Step::WatchDisk => self.life().checkpointer.watch_disk(),
            Step::Work => return self.work(),
            Step::Post => return self.post().map(drop),
            Step::Answer => return self.answer().map(drop),
            Step::Act => return self.act().map(drop),
            Step::Time => self.pass_time(),
            Step::Fault => return self.fault(),
            Step::Content => return self.audit_content(),
        }
        Ok(())
    }

    fn some_errand(&mut self) -> Checked {
        let movable = (0..self.errands.len()).filter(|index| !self.errands[*index].is_waiting());
        let movable: Vec<usize> = movable.collect();
        if movable.is_empty() {
            return Ok(());
        }
        let index = *self.base.random.pick(&movable);
        self.go_on(index)
    }

    /// A client has an idea, if not too many are on their way.
    fn client(&mut self) {
        let clients = self.errands.iter().filter(|errand| errand.owner == Owner::Client);
        if clients.count() < self.base.mode.clients {
            self.invent();
        }
    }
}
