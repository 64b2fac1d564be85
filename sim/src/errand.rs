//! A command on its way to its decision: it is asked, told what to fetch, and asked again, with
//! anything happening in between.

use reveille_engine::command::{Command, FetchedAnchor};
use reveille_engine::partition::{FetchedKeys, Lookup, Outcome, Submission};
use reveille_engine::reading;
use reveille_engine::{Failure, Unavailable};
use reveille_store::state::Reader;
use tokio::sync::oneshot;

use crate::request::Request;
use crate::world::{Checked, World, violated};

/// Who is waiting for the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Client,
    /// Nobody: a read that is to be written down.
    Nobody,
    /// The one who works off the due index.
    Worker,
}

/// A command on its way.
pub(crate) struct Errand {
    pub(crate) owner: Owner,
    pub(crate) request: Request,
    pub(crate) stage: Stage,
    wanted: Vec<Lookup>,
    fetched: FetchedKeys,
    /// How often it was asked.
    rounds: u32,
}

pub(crate) enum Stage {
    /// The fork's source is to be looked at.
    Anchor,
    Submit,
    /// Keys are missing: a reader is taken,
    Look,
    /// and only later read from.
    Read(Reader),
    Waiting {
        answer: oneshot::Receiver<Outcome>,
        expected: Outcome,
        /// The batch that it was decided in.
        batch: u64,
        /// The stream that it was decided on, if the model knows one.
        id: Option<u64>,
    },
}

impl Errand {
    pub(crate) fn new(owner: Owner, request: Request) -> Errand {
        Errand {
            owner,
            request,
            stage: Stage::Anchor,
            wanted: Vec::new(),
            fetched: FetchedKeys::default(),
            rounds: 0,
        }
    }

    /// The same once more, from the beginning.
    pub(crate) fn again(self) -> Errand {
        Errand::new(self.owner, self.request)
    }

    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.stage, Stage::Waiting { .. })
    }
}

impl World {
    /// Takes an errand one step further; true if it has its outcome.
    pub(crate) fn advance(&mut self, errand: &mut Errand) -> Checked<bool> {
        match std::mem::replace(&mut errand.stage, Stage::Submit) {
            Stage::Anchor => self.fetch_anchor(errand)?,
            Stage::Submit => return self.submit(errand),
            Stage::Look => errand.stage = Stage::Read(self.life().shared.state.reader()),
            Stage::Read(reader) => {
                let read = FetchedKeys::read(&reader, &errand.wanted);
                errand.fetched =
                    read.map_err(|error| violated(format!("a read failed: {error}")))?;
            }
            waiting @ Stage::Waiting { .. } => errand.stage = waiting,
        }
        Ok(false)
    }

    /// Looks at a fork's source, as the engine does before the decision.
    fn fetch_anchor(&mut self, errand: &mut Errand) -> Checked {
        let request = &mut errand.request;
        let Command::Create { tenant, request: asked, anchor, .. } = &mut request.command else {
            return Ok(());
        };
        let Some((fork, at)) = asked.fork.as_ref().and_then(|fork| Some((fork, fork.at?))) else {
            return Ok(());
        };
        let reader = self.life().shared.state.reader();
        let failed = |error: Failure| violated(format!("the source cannot be read: {error}"));
        let source = reading::head(&reader, tenant, &fork.source).map_err(failed)?;
        let found = source.map(|source| {
            let found = reading::anchor(&reader, tenant, &source, at)?;
            Ok(FetchedAnchor { source_id: source.id, at, anchor: found })
        });
        *anchor = found.transpose().map_err(failed)?;
        request.anchor = self.durable.anchor(fork.source.as_str(), at.position());
        crate::audit::same_anchor(anchor.as_ref(), request.anchor.as_ref())
    }

    /// Asks the partition, and the model beside it.
    fn submit(&mut self, errand: &mut Errand) -> Checked<bool> {
        let weight = errand.request.weight();
        if self.open_weight > 0 && self.open_weight + weight > self.mode.batch_weight_max() {
            self.note("no room in the batch");
            return Ok(false);
        }
        errand.rounds += 1;
        if errand.rounds > 60 {
            return Err(violated("a decision asks for keys without end".into()));
        }
        let (reply, mut answer) = oneshot::channel();
        let command = &errand.request.command;
        let shared = self.life().shared.clone();
        let (read_only, idle) = {
            let partition = shared.lock();
            (partition.read_only, partition.is_idle())
        };
        let submitted = shared.lock().submit(command, &errand.fetched, self.now, reply);
        match submitted {
            Submission::NoRoom(_) => Err(violated("no room for so little".into())),
            Submission::Missing(wanted, _) => {
                self.note(&format!("missing {wanted:?}"));
                self.tally.fetches += 1;
                for it in wanted {
                    if errand.wanted.contains(&it) {
                        self.tally.stale += 1;
                    } else {
                        errand.wanted.push(it);
                    }
                }
                errand.stage = Stage::Look;
                Ok(false)
            }
            Submission::Decided if read_only && is_write(command) => {
                let told = answer.try_recv();
                self.note("read-only");
                if told != Ok(Err(Unavailable::DiskFull.into())) {
                    return Err(violated(format!("a read-only server answered {told:?}")));
                }
                self.finish(errand, &Err(Unavailable::DiskFull.into()));
                Ok(true)
            }
            Submission::Decided => {
                let answered = self.decided_now(errand, answer)?;
                if let Stage::Waiting { expected: Err(_), .. } = errand.stage
                    && idle
                {
                    return Err(violated("a rejection waits for nothing".into()));
                }
                if !answered {
                    self.open_weight += weight;
                }
                Ok(answered)
            }
        }
    }

    /// The partition has decided: so does the model.
    fn decided_now(
        &mut self,
        errand: &mut Errand,
        mut answer: oneshot::Receiver<Outcome>,
    ) -> Checked<bool> {
        let request = &errand.request;
        let (expected, after) = self.decided.decide(request, self.now, &self.memory);
        self.note(&format!("decided {} -> {expected:?}", describe(request)));
        let id = target(&request.command).and_then(|path| Some(after.streams.get(path)?.id));
        if let Ok(reveille_engine::command::Answer::Created { head, new: true }) = &expected {
            self.memory.next_id = head.id.0 + 1;
        }
        self.decided = after;
        match answer.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => {
                errand.stage = Stage::Waiting { answer, expected, batch: self.open_batch, id };
                Ok(false)
            }
            Err(oneshot::error::TryRecvError::Closed) => {
                Err(violated("a command was decided and forgotten".into()))
            }
            Ok(told) => {
                // Whatever is told at once must be true of what is durable.
                let (durably, _) = self.durable.decide(request, self.now, &self.memory);
                if told != expected || told != durably {
                    return Err(violated(format!(
                        "{} was told {told:?} at once; decided {expected:?}, durably {durably:?}",
                        describe(request)
                    )));
                }
                self.acknowledge(errand, &told, id);
                self.finish(errand, &told);
                Ok(true)
            }
        }
    }
}

/// The path that a client's command is about.
fn target(command: &Command) -> Option<&str> {
    match command {
        Command::Append { path, .. } | Command::Create { path, .. } => Some(path.as_str()),
        _ => None,
    }
}

fn is_write(command: &Command) -> bool {
    matches!(command, Command::Create { .. } | Command::Append { .. } | Command::Probe)
}

/// A command in a line.
pub(crate) fn describe(request: &Request) -> String {
    let len = request.payload.sent().len();
    match &request.command {
        Command::Create { path, request, .. } => {
            let fork = request.fork.as_ref().map(|fork| {
                let at = fork.at.map(|at| at.position());
                format!(" fork of {} at {at:?}+{}", fork.source, fork.sub_offset)
            });
            let fork = fork.unwrap_or_default();
            let (expiry, closed) = (&request.expiry, request.closed);
            format!("create {path}{fork} {expiry:?} closed={closed} {len}B")
        }
        Command::Append { path, request, .. } => {
            let by = request
                .producer
                .as_ref()
                .map(|tag| format!(" by {}/{}/{}", tag.id, tag.epoch, tag.seq))
                .unwrap_or_default();
            format!("append {path}{by} close={} {len}B", request.close)
        }
        Command::Delete { path, .. } => format!("delete {path}"),
        Command::Touch { path, id, at, .. } => format!("touch {path} {} at {}", id.0, at.0),
        Command::Obligation { due, found, .. } => format!("{due:?} with {} keys", found.len()),
        other => format!("{other:?}"),
    }
}
