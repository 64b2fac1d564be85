//! The one file of this world that calls the engine.

use reveille_core::stream::create::ForkRequest;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_engine::app::Part as _;
pub(super) use reveille_engine::limits::LIVE_DATA_BYTES;
use reveille_engine::streams::access_times::AccessTimes;
use reveille_engine::streams::append::AppendToStream;
pub(super) use reveille_engine::streams::create::FetchedAnchor;
use reveille_engine::streams::create::{CreateStream, CreatedStream};
use reveille_engine::streams::delete::DeleteStream;
use reveille_engine::streams::lifetime::TouchStream;
use reveille_engine::streams::live::LiveReaders;
pub(super) use reveille_engine::streams::live::{TailEvent, TailWatch, WatchEvent};
use reveille_engine::streams::read;
pub(super) use reveille_engine::streams::read::Reading;
use reveille_kernel::error::{Damaged, Error, Never, Unavailable};

use super::Streams;
use super::action::{Action, StreamAnswer, StreamError, StreamResult};
use crate::base::engine::{self, Engine, Outcome, ProbePartition};
use crate::base::{CheckResult, WorldCall, violation};

pub(super) fn call(
    tenant: &Tenant,
    action: &Action,
    anchor: Option<&FetchedAnchor>,
) -> WorldCall<Streams> {
    let tenant = tenant.clone();
    match action.clone() {
        Action::Create { path, request } => {
            let command = CreateStream { tenant, path, request, anchor: anchor.cloned() };
            engine::call(command, |outcome| translate(outcome, created))
        }
        Action::Append { path, request } => {
            let command = AppendToStream { tenant, path, request };
            engine::call(command, |outcome| translate(outcome, StreamAnswer::Appended))
        }
        Action::Delete { path } => {
            let command = DeleteStream { tenant, path };
            engine::call(command, |outcome| translate(outcome, |()| StreamAnswer::Done))
        }
        Action::Touch { path, id, at } => engine::call(TouchStream { tenant, path, id, at }, done),
        Action::Timer(timer) => engine::call(timer.command, done),
        Action::Probe => engine::call(ProbePartition, done),
    }
}

fn created(stream: CreatedStream) -> StreamAnswer {
    StreamAnswer::Created { head: stream.head, new: stream.is_new }
}

/// What becomes of a command that is never rejected.
fn done(outcome: Outcome<(), Never>) -> StreamResult {
    let outcome = outcome.map_err(|error| error.map_rejection(|never| match never {}));
    translate(outcome, |()| StreamAnswer::Done)
}

fn translate<A>(outcome: Outcome<A, Rejected>, answer: fn(A) -> StreamAnswer) -> StreamResult {
    match outcome {
        Ok(it) => Ok(answer(it)),
        Err(Error::Rejected(rejected)) => Err(StreamError::Rejected(rejected)),
        Err(Error::Unavailable(Unavailable::DiskFull | Unavailable::NotLeader)) => {
            Err(StreamError::Unavailable)
        }
        Err(other) => Err(StreamError::Other(format!("{other:?}"))),
    }
}

fn access_times(engine: &Engine) -> &AccessTimes {
    engine.shared().domains.part::<AccessTimes>()
}

/// What a reader gets who asks for a stream.
pub(super) fn head(
    engine: &Engine,
    tenant: &Tenant,
    path: &StreamPath,
    now: Millis,
) -> CheckResult<Result<Head, Rejected>> {
    let head = read::head(&engine.reader(), tenant, path);
    let head = head.map_err(|error| violation(format!("{path} cannot be read: {error}")))?;
    Ok(head.ok_or(Rejected::NotFound).and_then(|head| {
        if head.soft_deleted {
            Err(Rejected::Gone)
        } else if now < access_times(engine).expires_at(&head) {
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
    let failed = |error: Damaged| violation(format!("the source cannot be read: {error}"));
    let source = read::head(&reader, tenant, &fork.source).map_err(failed)?;
    let found = source.map(|source| {
        let anchor = read::anchor(&reader, tenant, &source, at)?;
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
        Err(Error::Rejected(Rejected::ReadOffset { .. })) => Ok(None),
        Err(error) => {
            let id = head.id;
            Err(violation(format!("{id:?} from {from} cannot be read: {error}")))
        }
    }
}

/// A read was made; true if it is to be written down.
pub(super) fn touch(engine: &Engine, head: &Head, now: Millis) -> bool {
    access_times(engine).touch(head, now)
}

pub(super) fn watch(engine: &Engine, id: StreamId) -> TailWatch {
    engine.shared().domains.part::<LiveReaders>().watch(id)
}

pub(super) fn sweep_watches(engine: &Engine) {
    engine.shared().domains.part::<LiveReaders>().sweep();
}
