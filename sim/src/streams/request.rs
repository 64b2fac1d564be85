//! A request to a stream: what it must come to is decided a second time by the model.

use reveille_core::{Millis, Tenant};

use super::action::{Action, StreamAnswer, StreamError, StreamResult};
use super::engine::{self, FetchedAnchor};
use super::model::{ModelInput, SourceAnchor};
use super::payload::Payload;
use super::{Streams, audit};
use crate::base::engine::ID_STRIDE;
use crate::base::{CheckResult, Decision, Origin, Outcome, Request, WorldCall, violation};

#[derive(Clone)]
pub(super) struct StreamRequest {
    tenant: Tenant,
    action: Action,
    payload: Payload,
    /// What stands at a fork's offset of its source, as the engine found it,
    fetched: Option<FetchedAnchor>,
    /// and as the model says.
    anchor: Option<SourceAnchor>,
    expected: Option<StreamResult>,
    /// The stream that it was decided on, if the model knows one.
    stream: Option<u64>,
    was_rolled_back: bool,
}

impl StreamRequest {
    pub(super) fn new(tenant: &Tenant, action: Action) -> StreamRequest {
        StreamRequest::with_payload(tenant, action, Payload::Empty)
    }

    pub(super) fn with_payload(tenant: &Tenant, action: Action, payload: Payload) -> StreamRequest {
        StreamRequest {
            tenant: tenant.clone(),
            action,
            payload,
            fetched: None,
            anchor: None,
            expected: None,
            stream: None,
            was_rolled_back: false,
        }
    }

    fn input(&self) -> ModelInput<'_> {
        ModelInput { action: &self.action, payload: &self.payload, anchor: self.anchor.as_ref() }
    }

    /// The same once more, from the beginning.
    fn again(self) -> StreamRequest {
        StreamRequest::with_payload(&self.tenant, self.action, self.payload)
    }

    /// Whatever is told at once must be true of what is durable.
    fn check_immediate(
        &self,
        world: &Streams,
        now: Millis,
        expected: &StreamResult,
        told: &StreamResult,
    ) -> CheckResult {
        let (durably, _) = world.durable.decide(&self.input(), now, &world.memory);
        if told == expected && *told == durably {
            return Ok(());
        }
        Err(violation(format!(
            "{self:?} was told {told:?} at once; decided {expected:?}, durably {durably:?}"
        )))
    }

    /// A producer that was told of its append relies on it.
    fn record_acknowledgment(&self, world: &mut Streams, outcome: &StreamResult) {
        if let (Ok(StreamAnswer::Appended(receipt)), Some(id)) = (outcome, self.stream)
            && let Action::Append { request, .. } = &self.action
            && request.producer.is_some()
            && !receipt.duplicate
            && let Some(stream) = world.durable.by_id(id)
            && let Some(piece) = self.payload.stored(&stream.kind)
            && !piece.is_empty()
        {
            world.acknowledged.entry(id).or_default().push(piece.data);
        }
    }
}

impl std::fmt::Debug for StreamRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.action.describe(self.payload.sent().len()))
    }
}

impl Request<Streams> for StreamRequest {
    fn call(&self) -> WorldCall<Streams> {
        engine::call(&self.tenant, &self.action, self.fetched.as_ref())
    }

    fn weight(&self) -> u64 {
        let remains = match &self.action {
            Action::Timer(timer) => timer.remains * 32,
            _ => 0,
        };
        600 + (self.payload.sent().len() + remains) as u64
    }

    /// Looks at a fork's source.
    fn prepare(&mut self, world: &mut Streams) -> CheckResult<bool> {
        let Action::Create { request, .. } = &self.action else { return Ok(false) };
        let Some((fork, at)) = request.fork.as_ref().and_then(|fork| Some((fork, fork.at?))) else {
            return Ok(false);
        };
        self.fetched = engine::anchor(world.base.engine(), &self.tenant, fork, at)?;
        self.anchor = world.durable.anchor(fork.source.as_str(), at.position());
        audit::compare_anchors(self.fetched.as_ref(), self.anchor.as_ref())?;
        Ok(true)
    }

    fn decided(&mut self, world: &mut Streams, decision: &Decision<'_, Streams>) -> CheckResult {
        if decision.was_read_only && self.action.is_write() {
            let told = decision.outcome.cloned();
            if told != Some(Err(StreamError::Unavailable)) {
                return Err(violation(format!("a read-only server answered {told:?}")));
            }
            self.expected = told;
            return Ok(());
        }
        let (expected, after) = world.decided.decide(&self.input(), decision.now, &world.memory);
        world.base.note(&format!("the model says {expected:?}"));
        let stream = self.action.target().and_then(|path| after.streams.get(path));
        self.stream = stream.map(|stream| stream.id);
        if let Ok(StreamAnswer::Created { head, new: true }) = &expected {
            world.memory.next_id = head.id.0 + ID_STRIDE;
        }
        world.decided = after;
        match decision.outcome {
            Some(outcome) => self.check_immediate(world, decision.now, &expected, outcome)?,
            None if decision.was_idle && expected.is_err() => {
                return Err(violation(format!("{self:?} is rejected and waits for nothing")));
            }
            None => {}
        }
        self.expected = Some(expected);
        Ok(())
    }

    fn rolled_back(&mut self) {
        self.expected = Some(Err(StreamError::Unavailable));
        self.was_rolled_back = true;
    }

    fn answered(
        self: Box<Self>,
        world: &mut Streams,
        origin: Origin,
        told: Outcome<Streams>,
    ) -> CheckResult {
        if Some(&told) != self.expected.as_ref() {
            let expected = &self.expected;
            return Err(violation(format!("{self:?} was told {told:?}, not {expected:?}")));
        }
        self.record_acknowledgment(world, &told);
        if origin == Origin::Client && self.was_rolled_back {
            world.base.run(Origin::Client, self.again());
        }
        Ok(())
    }

    /// Most clients ask again.
    fn interrupted(self: Box<Self>, world: &mut Streams, origin: Origin) {
        if origin == Origin::Client && world.base.random.percent(80) {
            world.base.run(Origin::Client, self.again());
        }
    }
}
