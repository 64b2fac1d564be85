//! Commands: what can be asked of a partition. Each is one pure decision over the keys it reads.

pub mod append;
pub mod callback;
pub mod consumer;
pub mod create;
pub mod delete;
pub mod delivery;
mod fan_out;
pub mod hook;
pub mod ingest;
pub mod lease;
pub mod obligation;
pub mod subscribe;
pub mod timer_group;
pub mod trim;

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::Dialect;
use reveille_core::delivery::hook::{DeliveryCounts, Hook, HookId, HookSpec};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::stream::append::{Append, AppendReceipt};
use reveille_core::stream::create::{Create, ForkAnchor};
use reveille_core::stream::{Head, StreamId};
use reveille_core::subscription::{Subscription, SubscriptionSpec};
use reveille_core::trace::Trace;
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_schema::keys::{ConsumerKey, Due, Meta};

use crate::command::callback::{Report, Standing};
use crate::command::consumer::WakeOutcome;
use crate::command::delivery::DeliveryOutcome;
use crate::command::hook::{HookChange, Since};
use crate::command::ingest::Ingest;
use crate::command::lease::{Lease, LeaseRequest};
use crate::command::timer_group::Open;
use crate::command::trim::Look;
use crate::effect::Effect;
use crate::failure::Failure;
use crate::keys::{self, KeyChange};
use crate::txn::{ReadError, Txn};

/// What a decision comes to, unless something is missing for it.
pub(crate) type Decided = Result<Result<Answer, Failure>, ReadError>;

/// A request to a partition.
#[derive(Debug, Clone)]
pub enum Command {
    /// Make a stream.
    Create {
        tenant: Tenant,
        path: StreamPath,
        /// What it should be.
        request: Create,
        /// What stands where a fork leaves its source.
        anchor: Option<FetchedAnchor>,
    },
    /// Append to a stream, or close it.
    Append {
        tenant: Tenant,
        path: StreamPath,
        /// What to append.
        request: Append,
    },
    /// End a stream.
    Delete { tenant: Tenant, path: StreamPath },
    /// A stream was read: write down when.
    Touch {
        tenant: Tenant,
        path: StreamPath,
        /// Which incarnation was read.
        id: StreamId,
        at: Millis,
    },
    /// An obligation's time has come.
    Obligation {
        /// Its key in the due index.
        key: Bytes,
        /// What it is.
        due: Due,
        /// Keys to remove, for a purge.
        found: Vec<Bytes>,
    },
    /// Make a subscription.
    Subscribe {
        tenant: Tenant,
        /// What it should be.
        spec: SubscriptionSpec,
        /// The secret that it gets if it is new.
        secret: Option<Arc<str>>,
    },
    /// End a subscription.
    Unsubscribe { tenant: Tenant, dialect: Dialect, name: Arc<str> },
    /// Name streams that a subscription is for.
    EditStreams {
        tenant: Tenant,
        name: Arc<str>,
        /// Streams to name.
        add: Vec<StreamPath>,
        /// A stream to name no longer.
        remove: Option<StreamPath>,
    },
    /// A consumer reports.
    Report(Box<Report>),
    /// A worker asks for something.
    Lease { tenant: Tenant, name: Arc<str>, request: LeaseRequest },
    /// Attempts to tell consumers have ended.
    RecordWakeOutcomes(Vec<WakeOutcome>),
    /// A consumer's time has come, perhaps.
    Timer {
        /// The key in the due index.
        key: Bytes,
        consumer: ConsumerKey,
        /// Attempts to tell it that are on their way.
        in_flight: Vec<(u64, u32)>,
    },
    /// Keep this under a name of the server's own, if nothing is there yet or it is to be replaced.
    Install {
        name: Meta,
        /// What to keep.
        value: Bytes,
        /// What must be there now.
        expected: Option<Bytes>,
    },
    /// Take events in.
    Ingest(Box<Ingest>),
    /// Make a hook.
    Hook {
        tenant: Tenant,
        /// What it is called.
        name: Arc<str>,
        /// What it is for.
        spec: HookSpec,
        since: Since,
    },
    /// Change a hook, or end it.
    ChangeHook { tenant: Tenant, name: Arc<str>, change: HookChange },
    /// Attempts to deliver have ended.
    RecordDeliveryOutcomes(Vec<DeliveryOutcome>),
    /// An attempt to deliver was not made, because its hook is not active.
    Unsent { id: DeliveryId, attempt: u32 },
    /// A delivery's time has come, perhaps.
    DeliveryTimer {
        /// The key in the due index.
        key: Bytes,
        id: DeliveryId,
        /// Whether an attempt is under way or waits for its turn.
        in_flight: bool,
    },
    /// The time of deliveries that began together has come, perhaps.
    LotTimer {
        /// The key in the due index.
        key: Bytes,
        /// Those that had no end.
        open: Vec<Open>,
    },
    /// Make a dead delivery again.
    Retry { tenant: Tenant, id: DeliveryId },
    /// Forget deliveries that ended before a time.
    CleanUp {
        hook: HookId,
        cutoff: Millis,
        /// The key after which to begin; empty for the first.
        after: Bytes,
    },
    /// Forget the oldest events of a tenant.
    Trim {
        tenant: Tenant,
        /// The stream that has their words.
        stream: StreamPath,
        /// What was found out about them.
        look: Look,
    },
    /// Remove what is of no use any more.
    Sweep {
        /// Entries that say so.
        found: Vec<Bytes>,
    },
    /// Does the pipeline work?
    Probe,
    /// Any of the others, as a part of a trace: wakes that it causes remember that.
    Traced {
        trace: Trace,
        /// What is to be done.
        command: Box<Command>,
    },
    /// Keep a key, or forget it.
    Key(KeyChange),
}

impl Command {
    /// The same as a part of a trace, if there is one.
    pub fn within(self, trace: Option<Trace>) -> Command {
        match trace {
            Some(trace) => Command::Traced { trace, command: Box::new(self) },
            None => self,
        }
    }
}

/// What stood at an offset of a source; bytes of a stream never change, so it is still true.
#[derive(Debug, Clone)]
pub struct FetchedAnchor {
    /// The incarnation it was read from.
    pub source_id: StreamId,
    pub at: Offset,
    /// What begins there.
    pub anchor: ForkAnchor,
}

/// The result of a command that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The stream is there.
    Created {
        /// As it is now.
        head: Box<Head>,
        /// Whether this request made it.
        new: bool,
    },
    /// The append is done.
    Appended(AppendReceipt),
    /// The subscription is there.
    Subscribed {
        /// As it is.
        subscription: Arc<Subscription>,
        /// Whether this request made it.
        new: bool,
    },
    /// The report was heard.
    Reported(Box<Standing>),
    /// The work was given.
    Leased(Box<Lease>),
    /// The events are in.
    Ingested {
        received: u64,
        /// Whether that was so before.
        repeated: bool,
    },
    /// The hook is there.
    Hooked(Arc<Hook>),
    /// The hook has ended; what it had come to.
    Unhooked(DeliveryCounts),
    /// A delivery was begun.
    Begun(DeliveryId),
    /// Deliveries, or events, were forgotten.
    CleanedUp {
        /// The key after which there may be more.
        next: Option<Bytes>,
        forgotten: u64,
    },
    /// Nothing more to say.
    Done,
}

/// Whether somebody waits for a command that has these effects to become durable.
pub(crate) fn is_urgent(command: &Command, effects: &[Effect]) -> bool {
    match command {
        // What was put off for seconds may come a moment later still.
        Command::Timer { .. } | Command::DeliveryTimer { .. } | Command::LotTimer { .. } => false,
        // What came of attempts is written down for nobody, unless it lets something happen.
        Command::RecordWakeOutcomes(_) | Command::RecordDeliveryOutcomes(_) => {
            effects.iter().any(Effect::is_urgent)
        }
        _ => true,
    }
}

/// What has come due was seen to be due: a clock that was set back since does not make it early.
pub(crate) fn not_before(command: &Command) -> Millis {
    match command {
        Command::Timer { key, .. }
        | Command::DeliveryTimer { key, .. }
        | Command::LotTimer { key, .. }
        | Command::Obligation { key, .. } => {
            reveille_schema::keys::parse_due(key).map(|(at, _)| at)
        }
        _ => None,
    }
    .unwrap_or(Millis(0))
}

/// Whether a command writes what a disk that is nearly full has no room for: it is refused then.
pub(crate) fn is_write(command: &Command) -> bool {
    match command {
        Command::Create { .. }
        | Command::Append { .. }
        | Command::Subscribe { .. }
        | Command::EditStreams { .. }
        | Command::Ingest(_)
        | Command::Hook { .. }
        | Command::Retry { .. }
        | Command::Probe => true,
        Command::Report(report) => !report.appends.is_empty(),
        Command::Key(change) => change.key.is_some(),
        Command::Traced { command, .. } => is_write(command),
        Command::Delete { .. }
        | Command::Touch { .. }
        | Command::Obligation { .. }
        | Command::Unsubscribe { .. }
        | Command::Lease { .. }
        | Command::RecordWakeOutcomes(_)
        | Command::Install { .. }
        | Command::ChangeHook { .. }
        | Command::RecordDeliveryOutcomes(_)
        | Command::Unsent { .. }
        | Command::DeliveryTimer { .. }
        | Command::LotTimer { .. }
        | Command::CleanUp { .. }
        | Command::Trim { .. }
        | Command::Sweep { .. }
        | Command::Timer { .. } => false,
    }
}

/// The bytes that a command adds to a batch, roughly.
pub(crate) fn weight(command: &Command) -> usize {
    const SMALL: usize = 512;
    SMALL
        + match command {
            Command::Traced { command, .. } => weight(command),
            Command::Create { request, .. } => request.body.size(),
            Command::Append { request, .. } => request.body.size(),
            Command::Obligation { found, .. } => found.len() * 32,
            Command::Report(report) => {
                report.appends.iter().map(|(_, append)| append.body.size()).sum()
            }
            Command::Subscribe { spec, .. } => spec.streams.len() * 128,
            Command::EditStreams { add, .. } => add.len() * 128,
            Command::Ingest(ingest) => ingest.payload.len() + ingest.events.len() * 512,
            Command::Sweep { found } => found.len() * 128,
            Command::RecordWakeOutcomes(all) => all.len() * SMALL,
            Command::RecordDeliveryOutcomes(all) => all.len() * SMALL,
            Command::LotTimer { open, .. } => open.len() * SMALL,
            Command::Hook { .. }
            | Command::ChangeHook { .. }
            | Command::Unsent { .. }
            | Command::DeliveryTimer { .. }
            | Command::Retry { .. }
            | Command::CleanUp { .. }
            | Command::Trim { .. }
            | Command::Delete { .. }
            | Command::Touch { .. }
            | Command::Unsubscribe { .. }
            | Command::Lease { .. }
            | Command::Timer { .. }
            | Command::Install { .. }
            | Command::Key(_)
            | Command::Probe => 0,
        }
}

/// Decides a command. ReadError keys end the attempt without a trace; a rejection changes nothing.
pub(crate) fn decide(command: &Command, txn: &mut Txn<'_>) -> Decided {
    match command {
        Command::Create { tenant, path, request, anchor } => {
            create::decide(txn, tenant, path, request, anchor.as_ref())
        }
        Command::Append { tenant, path, request } => append::decide(txn, tenant, path, request),
        Command::Delete { tenant, path } => delete::decide(txn, tenant, path),
        Command::Touch { tenant, path, id, at } => {
            obligation::touch(txn, tenant, path, *id, *at).map(Ok)
        }
        Command::Obligation { key, due, found } => obligation::fulfil(txn, key, due, found).map(Ok),
        Command::Subscribe { tenant, spec, secret } => {
            subscribe::subscribe(txn, tenant, spec, secret.as_ref())
        }
        Command::Unsubscribe { tenant, dialect, name } => {
            subscribe::unsubscribe(txn, tenant, *dialect, name)
        }
        Command::EditStreams { tenant, name, add, remove } => {
            subscribe::edit(txn, tenant, name, add, remove.as_ref())
        }
        Command::Report(report) => callback::decide(txn, report),
        Command::Lease { tenant, name, request } => lease::decide(txn, tenant, name, request),
        Command::RecordWakeOutcomes(all) => consumer::ended(txn, all).map(Ok),
        Command::Timer { key, consumer, in_flight } => {
            consumer::timer(txn, key, consumer, in_flight).map(Ok)
        }
        Command::Install { name, value, expected } => {
            txn.install(*name, value, expected.as_ref()).map(Ok)
        }
        Command::Ingest(ingest) => ingest::decide(txn, ingest),
        Command::Hook { tenant, name, spec, since } => hook::add(txn, tenant, name, spec, since),
        Command::ChangeHook { tenant, name, change } => hook::change(txn, tenant, name, change),
        Command::RecordDeliveryOutcomes(all) => delivery::ended(txn, all).map(Ok),
        Command::Unsent { id, attempt } => delivery::unsent(txn, *id, *attempt).map(Ok),
        Command::DeliveryTimer { key, id, in_flight } => {
            delivery::timer(txn, key, *id, *in_flight).map(Ok)
        }
        Command::LotTimer { key, open } => timer_group::timer(txn, key, open).map(Ok),
        Command::Retry { tenant, id } => delivery::retry(txn, tenant, *id),
        Command::CleanUp { hook, cutoff, after } => hook::clean_up(txn, *hook, *cutoff, after),
        Command::Trim { tenant, stream, look } => trim::decide(txn, tenant, stream, look),
        Command::Sweep { found } => Ok(Ok(hook::sweep(txn, found))),
        Command::Probe => {
            txn.probe();
            Ok(Ok(Answer::Done))
        }
        Command::Traced { trace, command } => {
            txn.trace = Some(*trace);
            decide(command, txn)
        }
        Command::Key(change) => Ok(Ok(keys::change(txn, change))),
    }
}
