//! A command on its way to its decision, and what its outcome means to whoever sent it.

use reveille_engine::Failure;
use reveille_engine::command::Command;
use reveille_engine::partition::{FetchedKeys, Lookup, Outcome, Submission};
use reveille_store::state::Reader;
use tokio::sync::oneshot;

use super::model::Expected;
use super::world::Deliveries;
use crate::server::Server;
use crate::world::{Checked, violated};

/// Who is waiting for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Client,
    /// Nobody: a repetition.
    Nobody,
    /// The due index.
    Worker,
    /// An attempt that has ended.
    Post(u64),
}

/// A command on its way.
pub(crate) struct Errand {
    pub(crate) owner: Owner,
    pub(crate) command: Command,
    pub(crate) stage: Stage,
    /// What must become of it.
    expected: Option<Expected>,
    wanted: Vec<Lookup>,
    fetched: FetchedKeys,
    rounds: u32,
}

pub(crate) enum Stage {
    Submit,
    /// Keys are missing: a reader is taken,
    Look,
    /// and only later read from.
    Read(Reader),
    Waiting {
        answer: oneshot::Receiver<Outcome>,
        /// The batch that it was decided in.
        batch: u64,
    },
}

impl Errand {
    fn new(owner: Owner, command: Command) -> Errand {
        Errand {
            owner,
            command,
            stage: Stage::Submit,
            expected: None,
            wanted: Vec::new(),
            fetched: FetchedKeys::default(),
            rounds: 0,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }
}

/// More than a command adds to a batch.
fn weight(command: &Command) -> u64 {
    match command {
        Command::Ingest(_) => 40_000,
        Command::Obligation { .. } => 20_000,
        _ => 4_000,
    }
}

impl Deliveries {
    pub(crate) fn send(&mut self, owner: Owner, command: Command) {
        self.errands.push(Errand::new(owner, command));
    }

    /// Takes an errand one step further.
    pub(crate) fn go_on(&mut self, index: usize) -> Checked {
        let mut errand = self.errands.remove(index);
        match std::mem::replace(&mut errand.stage, Stage::Submit) {
            Stage::Submit => {
                if let Some(outcome) = self.submit(&mut errand)? {
                    return self.told(errand, outcome);
                }
            }
            Stage::Look => errand.stage = Stage::Read(self.life().shared.state.reader()),
            Stage::Read(reader) => {
                let read = FetchedKeys::read(&reader, &errand.wanted);
                errand.fetched =
                    read.map_err(|error| violated(format!("a read failed: {error}")))?;
            }
            waiting @ Stage::Waiting { .. } => errand.stage = waiting,
        }
        self.errands.insert(index, errand);
        Ok(())
    }

    /// Asks the partition; the outcome if it is there at once.
    fn submit(&mut self, errand: &mut Errand) -> Checked<Option<Outcome>> {
        if !self.base.has_room(weight(&errand.command)) {
            return Ok(None);
        }
        errand.rounds += 1;
        if errand.rounds > 120 {
            let what = &errand.command;
            return Err(violated(format!("a decision asks for keys without end: {what:?}")));
        }
        let shared = self.life().shared.clone();
        let (reply, mut answer) = oneshot::channel();
        let submitted =
            shared.lock().submit(&errand.command, &errand.fetched, self.base.now, reply);
        match submitted {
            Submission::NoRoom(_) => Err(violated("no room for so little")),
            Submission::Missing(wanted, _) => {
                self.base.tally.fetches += 1;
                for it in wanted {
                    if errand.wanted.contains(&it) {
                        self.base.tally.stale += 1;
                    } else {
                        errand.wanted.push(it);
                    }
                }
                errand.stage = Stage::Look;
                Ok(None)
            }
            Submission::Decided => {
                self.note(&format!("decided {:?}", errand.command));
                let told = match answer.try_recv() {
                    Ok(Err(Failure::Unavailable(why))) => return Ok(Some(Err(why.into()))),
                    Ok(outcome) => Some(outcome),
                    Err(oneshot::error::TryRecvError::Empty) => None,
                    Err(oneshot::error::TryRecvError::Closed) => {
                        return Err(violated("a command was decided and forgotten"));
                    }
                };
                errand.expected = self.decided.apply(&errand.command);
                if matches!(errand.command, Command::Trim { .. }) {
                    self.decided.trimmed = self.trims_asked;
                }
                if told.is_some() {
                    self.rests_on_what_is_durable(errand)?;
                } else {
                    let batch = self.base.open_batch;
                    self.acts.push((batch, errand.command.clone()));
                    errand.stage = Stage::Waiting { answer, batch };
                    self.base.decided(weight(&errand.command));
                }
                Ok(told)
            }
        }
    }

    /// Whoever is answered at once is told of nothing that a crash could undo.
    fn rests_on_what_is_durable(&self, errand: &Errand) -> Checked {
        let mut after = self.durable.clone();
        if after.apply(&errand.command) == errand.expected && after == self.durable {
            return Ok(());
        }
        let what = &errand.command;
        Err(violated(format!("{what:?} was answered, and what it rests on is not durable")))
    }

    /// An errand has its outcome.
    pub(crate) fn told(&mut self, errand: Errand, outcome: Outcome) -> Checked {
        self.base.tally.answers += 1;
        self.note(&format!("told {:?}: {outcome:?}", errand.owner));
        if let Err(Failure::Damaged(what)) = &outcome {
            return Err(violated(format!("damaged: {what}")));
        }
        let unavailable = matches!(outcome, Err(Failure::Unavailable(_)));
        if let Some(expected) = errand.expected
            && !unavailable
            && !expected.agrees(&outcome)
        {
            let what = &errand.command;
            return Err(violated(format!("{what:?} was told {outcome:?}, not {expected:?}")));
        }
        if let (Command::Create { tenant, .. }, true) = (&errand.command, outcome.is_ok()) {
            self.unfit.insert(tenant.clone());
        }
        match errand.owner {
            Owner::Worker => {
                self.base.tally.obligations += u64::from(outcome.is_ok());
                self.base.worker.told(outcome.is_ok(), self.base.now);
            }
            Owner::Post(id) => self.answer_is_home(id, &errand.command, outcome.is_ok()),
            Owner::Client if unavailable => self.maybe_again(errand.command),
            Owner::Client | Owner::Nobody => {}
        }
        Ok(())
    }

    /// Whoever has a name for what it sends may send it again.
    pub(crate) fn maybe_again(&mut self, command: Command) {
        if let Command::Ingest(ingest) = &command
            && ingest.batch.is_some()
            && self.base.random.percent(80)
        {
            self.send(Owner::Client, command);
        }
    }
}
