//! The one file of this world that calls the engine.

use reveille_core::stream::create::ForkRequest;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_engine::command::Answer;
pub(super) use reveille_engine::command::FetchedAnchor;
pub(super) use reveille_engine::limits::LIVE_DATA_BYTES;
pub(super) use reveille_engine::live::{TailEvent, TailWatch, WatchEvent};
use reveille_engine::reading;
pub(super) use reveille_engine::reading::Reading;
use reveille_engine::{Failure, Unavailable};

use super::Streams;
use super::action::{Action, StreamAnswer, StreamError, StreamResult};
use crate::base::engine::{self, Command, Engine};
use crate::base::{CheckResult, WorldCall, violation};

pub(super) fn call(
    tenant: &Tenant,
    action: &Action,
    anchor: Option<&FetchedAnchor>,
) -> WorldCall<Streams> {
    let tenant = tenant.clone();
    let command = match action.clone() {
        Action::Create { path, request } => {
            Command::Create { tenant, path, request, anchor: anchor.cloned() }
        }
        Action::Append { path, request } => Command::Append { tenant, path, request },
        Action::Delete { path } => Command::Delete { tenant, path },
        Action::Touch { path, id, at } => Command::Touch { tenant, path, id, at },
        Action::Timer(timer) => *timer.command,
        Action::Probe => Command::Probe,
    };
    engine::call(command, translate)
}

fn translate(outcome: engine::Outcome) -> StreamResult {
    match outcome {
        Ok(Answer::Created { head, new }) => Ok(StreamAnswer::Created { head, new }),
        Ok(Answer::Appended(receipt)) => Ok(StreamAnswer::Appended(receipt)),
        Ok(Answer::Done) => Ok(StreamAnswer::Done),
        Ok(other) => Err(StreamError::Other(format!("{other:?}"))),
        Err(Failure::Rejected(rejected)) => Err(StreamError::Rejected(rejected)),
        Err(Failure::Unavailable(Unavailable::DiskFull)) => Err(StreamError::DiskFull),
        Err(other) => Err(StreamError::Other(format!("{other:?}"))),
    }
}

/// What a reader gets who asks for a stream.
pub(super) fn head(
    engine: &Engine,
    tenant: &Tenant,
    path: &StreamPath,
    now: Millis,
) -> CheckResult<Result<Head, Rejected>> {
    let head = reading::head(&engine.reader(), tenant, path);
    let head = head.map_err(|error| violation(format!("{path} cannot be read: {error}")))?;
    Ok(head.ok_or(Rejected::NotFound).and_then(|head| {
        if head.soft_deleted {
            Err(Rejected::Gone)
        } else if now < engine.shared().access_times.expires_at(&head) {
            Ok(head)
        } else {
            Err(if head.forks > 0 { Rejected::Gone } else { Rejected::NotFound })
        }
    }))
}

/// Looks at a fork's source, as the engine does before the decision.
pub(super) fn anchor(
    engine: &Engine,
    tenant: &Tenant,
    fork: &ForkRequest,
    at: Offset,
) -> CheckResult<Option<FetchedAnchor>> {
    let reader = engine.reader();
    let failed = |error: Failure| violation(format!("the source cannot be read: {error}"));
    let source = reading::head(&reader, tenant, &fork.source).map_err(failed)?;
    let found = source.map(|source| {
        let anchor = reading::anchor(&reader, tenant, &source, at)?;
        Ok(FetchedAnchor { source_id: source.id, at, anchor })
    });
    found.transpose().map_err(failed)
}

/// A read of a stream from an offset to its tail; `None` if nothing begins there.
pub(super) fn open_reading(
    engine: &Engine,
    tenant: &Tenant,
    head: &Head,
    from: u64,
) -> CheckResult<Option<Reading>> {
    let state = &engine.shared().state;
    match Reading::open(state, tenant, head, Offset::new(from), head.tail) {
        Ok(reading) => Ok(Some(reading)),
        Err(Failure::Rejected(Rejected::ReadOffset { .. })) => Ok(None),
        Err(error) => {
            let id = head.id;
            Err(violation(format!("{id:?} from {from} cannot be read: {error}")))
        }
    }
}

/// A read was made; true if it is to be written down.
pub(super) fn touch(engine: &Engine, head: &Head, now: Millis) -> bool {
    engine.shared().access_times.touch(head, now)
}

pub(super) fn watch(engine: &Engine, id: StreamId) -> TailWatch {
    engine.shared().live.watch(id)
}

pub(super) fn sweep_watches(engine: &Engine) {
    engine.shared().live.sweep();
}
