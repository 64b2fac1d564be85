//! A command on its way to its decision, and what its outcome means to whoever sent it.

use reveille_core::StreamPath;
use reveille_engine::Failure;
use reveille_engine::command::{Answer, Command};
use reveille_engine::partition::{FetchedKeys, Lookup, Outcome, Submission};
use reveille_store::state::Reader;
use tokio::sync::oneshot;

use super::oracle::Verdict;
use super::world::Wakes;
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
    /// Attempts that have ended, by the number of their lot.
    Posts(u64),
    /// Somebody who was woken.
    Agent(u64),
}

/// A command on its way.
pub(crate) struct Errand {
    pub(crate) owner: Owner,
    pub(crate) command: Command,
    pub(crate) stage: Stage,
    /// What it appends, and where.
    pub(crate) tokens: Vec<(StreamPath, String)>,
    /// What must become of it, as far as that was known when it was decided.
    pub(crate) verdict: Verdict,
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

/// More than any command adds to a batch.
const WEIGHT: u64 = 12_000;

impl Errand {
    pub(crate) fn new(owner: Owner, command: Command) -> Errand {
        Errand {
            owner,
            command,
            stage: Stage::Submit,
            tokens: Vec::new(),
            verdict: Verdict::default(),
            wanted: Vec::new(),
            fetched: FetchedKeys::default(),
            rounds: 0,
        }
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }
}

impl Wakes {
    /// Sends something that appends.
    pub(crate) fn send_with(
        &mut self,
        owner: Owner,
        command: Command,
        tokens: Vec<(StreamPath, String)>,
    ) {
        self.errands.push(Errand { tokens, ..Errand::new(owner, command) });
    }

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
        if !self.base.has_room(WEIGHT) {
            return Ok(None);
        }
        errand.rounds += 1;
        if errand.rounds > 120 {
            return Err(violated("a decision asks for keys without end".into()));
        }
        let shared = self.life().shared.clone();
        let idle = shared.lock().is_idle();
        errand.verdict = self.judge(&errand.command, idle);
        let at = errand.tokens.iter().map(|(path, _)| self.seen.streams.get(path).map(|it| it.id));
        errand.verdict.streams = at.collect();
        let (reply, mut answer) = oneshot::channel();
        let submitted =
            shared.lock().submit(&errand.command, &errand.fetched, self.base.now, reply);
        match submitted {
            Submission::NoRoom(_) => Err(violated("no room for so little".into())),
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
                self.note(&format!("decided {}", describe(&errand.command)));
                match answer.try_recv() {
                    Ok(outcome) => Ok(Some(outcome)),
                    Err(oneshot::error::TryRecvError::Empty) if errand.verdict.silent => {
                        let what = describe(&errand.command);
                        Err(violated(format!("S6: {what} changes something and comes too late")))
                    }
                    Err(oneshot::error::TryRecvError::Empty) => {
                        errand.stage = Stage::Waiting { answer, batch: self.base.open_batch };
                        self.base.decided(WEIGHT);
                        Ok(None)
                    }
                    Err(oneshot::error::TryRecvError::Closed) => {
                        Err(violated("a command was decided and forgotten".into()))
                    }
                }
            }
        }
    }

    /// An errand has its outcome.
    pub(crate) fn told(&mut self, errand: Errand, outcome: Outcome) -> Checked {
        self.base.tally.answers += 1;
        self.note(&format!("told {:?}: {outcome:?}", errand.owner));
        if let Err(Failure::Damaged(what)) = &outcome {
            return Err(violated(format!("damaged: {what}")));
        }
        let unavailable = matches!(outcome, Err(Failure::Unavailable(_)));
        if !unavailable {
            self.check_verdict(&errand, &outcome)?;
        }
        if let Command::Lease { name, .. } = &errand.command {
            self.claimed(name, &outcome)?;
        }
        match errand.owner {
            Owner::Worker => {
                self.base.tally.obligations += u64::from(outcome.is_ok());
                self.base.worker.told(outcome.is_ok(), self.base.now);
            }
            Owner::Posts(group) => self.answers_are_home(group),
            Owner::Agent(id) => self.agent_told(id, &errand.command, &outcome)?,
            Owner::Client | Owner::Nobody => {}
        }
        self.promise(&errand, &outcome)
    }

    /// Whoever was told that something is in a stream relies on it for as long as that lives.
    fn promise(&mut self, errand: &Errand, outcome: &Outcome) -> Checked {
        let made = match outcome {
            Ok(Answer::Appended(_)) => true,
            Ok(Answer::Reported(standing)) => standing.appended,
            Ok(Answer::Created { head, new: true }) => {
                let told = errand.tokens.iter().map(|(_, token)| token.clone());
                self.ledger.entry(head.id).or_default().extend(told);
                return Ok(());
            }
            _ => false,
        };
        for ((path, token), before) in errand.tokens.iter().zip(&errand.verdict.streams) {
            let Some(head) = self.seen.streams.get(path).filter(|_| made) else { continue };
            // What was there before and is there now was there when this was decided.
            if Some(head.id) == *before {
                self.ledger.entry(head.id).or_default().insert(token.clone());
            }
        }
        Ok(())
    }
}

/// A command in a line.
fn describe(command: &Command) -> String {
    format!("{command:?}")
}
