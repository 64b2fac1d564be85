//! Whoever was woken: reads, reports, lies, repeats itself, and comes back from the dead.

use bytes::Bytes;
use reveille_core::consumer::{Ack, Rejected, WakeId};
use reveille_core::stream::Body;
use reveille_core::stream::append::Append;
use reveille_core::token::Claims;
use reveille_core::{ContentType, Offset, StreamPath};
use reveille_engine::command::callback::Report;
use reveille_engine::command::lease::LeaseRequest;
use reveille_engine::command::{Answer, Command};
use reveille_engine::effect::WakeAttempt;
use reveille_engine::outbound;
use reveille_engine::partition::Outcome;
use reveille_engine::{Failure, Refused};
use reveille_schema::keys::ConsumerKey;

use super::errand::Owner;
use super::world::Wakes;
use crate::server::Server;
use crate::world::{Checked, violated};

/// Somebody who was told of a wake.
pub(crate) struct Agent {
    pub(crate) id: u64,
    key: ConsumerKey,
    epoch: u64,
    wake_id: WakeId,
    claims: Claims,
    paths: Vec<StreamPath>,
    /// A report is on its way.
    busy: bool,
    /// It was told to stop, or has finished; it may not know.
    pub(crate) retired: bool,
    /// Its last report, to be repeated.
    last: Option<(Command, Vec<(StreamPath, String)>)>,
}

impl Agent {
    pub(crate) fn new(
        id: u64,
        key: ConsumerKey,
        epoch: u64,
        wake_id: WakeId,
        claims: Claims,
        paths: Vec<StreamPath>,
    ) -> Agent {
        let (busy, retired, last) = (false, false, None);
        Agent { id, key, epoch, wake_id, claims, paths, busy, retired, last }
    }
}

impl Wakes {
    /// Somebody who was woken does something.
    pub(crate) fn act(&mut self) -> Checked<bool> {
        let zombies = !self.base.honest && self.base.random.one_in(6);
        let may = |agent: &Agent| !agent.busy && agent.retired == zombies;
        let free: Vec<usize> =
            (0..self.agents.len()).filter(|index| may(&self.agents[*index])).collect();
        if free.is_empty() {
            return Ok(false);
        }
        let index = *self.base.random.pick(&free);
        let repeat = !self.base.honest && self.base.random.one_in(5);
        let (command, tokens) = match &self.agents[index].last {
            Some(last) if repeat => last.clone(),
            _ if self.agents[index].key.path.is_some() => self.callback(index),
            _ => (self.lease_report(index), Vec::new()),
        };
        let agent = &mut self.agents[index];
        agent.busy = true;
        agent.last = Some((command.clone(), tokens.clone()));
        let owner = Owner::Agent(agent.id);
        self.send_with(owner, command, tokens);
        Ok(true)
    }

    /// How far the streams can be read now; sometimes less, older, or nonsense.
    fn acks(&mut self, index: usize) -> Vec<Ack> {
        let mut acks = Vec::new();
        for path in self.agents[index].paths.clone() {
            let Some(tail) = self.seen.streams.get(&path).map(|head| head.tail) else { continue };
            let to = match self.base.random.below(if self.base.honest { 1 } else { 14 }) {
                0..9 => Some(Some(tail)),
                9 => Some(Some(Offset::new(self.base.random.below(tail.position() + 1)))),
                10 => continue,
                11 => Some(Some(tail.plus(1 + self.base.random.below(50)))),
                12 => Some(None),
                _ => None,
            };
            acks.push(Ack { path: path.as_str().into(), offset: to, from: None });
        }
        if !self.base.honest && self.base.random.one_in(16) {
            acks.push(Ack {
                path: "/nowhere".into(),
                offset: Some(Some(Offset::new(3))),
                from: None,
            });
        }
        acks
    }

    fn callback(&mut self, index: usize) -> (Command, Vec<(StreamPath, String)>) {
        let acks =
            if self.base.honest || !self.base.random.one_in(5) { self.acks(index) } else { vec![] };
        let agent = &self.agents[index];
        let mut report = Report {
            claims: agent.claims.clone(),
            consumer: agent.key.clone(),
            epoch: agent.epoch,
            wake_id: Some(Ok(agent.wake_id)),
            acks,
            subscribe: Vec::new(),
            unsubscribe: Vec::new(),
            done: true,
            appends: Vec::new(),
        };
        let mut tokens = Vec::new();
        if self.base.honest {
            return (Command::Report(Box::new(report)), tokens);
        }
        report.done = self.base.random.one_in(2);
        match self.base.random.below(16) {
            0..4 => report.wake_id = None,
            4 => report.wake_id = Some(Err(())),
            5 => report.epoch = (report.epoch + 1).saturating_sub(self.base.random.below(3)),
            6 => report.wake_id = Some(Ok(WakeId([7; 12]))),
            _ => {}
        }
        if self.base.random.one_in(4) {
            report.subscribe.push(self.base.random.pick(&self.paths).clone());
        }
        if self.base.random.one_in(8) {
            report.unsubscribe.push(self.base.random.pick(&self.paths).clone());
        }
        if self.base.random.one_in(4) {
            let path = self.base.random.pick(&self.paths[..5]).clone();
            let token = format!("#{}", self.next_number());
            report.appends.push((path.clone(), text(&token)));
            tokens.push((path, token));
        }
        (Command::Report(Box::new(report)), tokens)
    }

    fn lease_report(&mut self, index: usize) -> Command {
        let acks =
            if self.base.honest || !self.base.random.one_in(5) { self.acks(index) } else { vec![] };
        let agent = &self.agents[index];
        let name = agent.claims.consumer.clone();
        let (claims, mut generation) = (agent.claims.clone(), agent.epoch);
        let mut wake_id = Ok(agent.wake_id);
        let mut done = true;
        if !self.base.honest {
            done = self.base.random.one_in(2);
            match self.base.random.below(16) {
                0 => wake_id = Err(()),
                1 => generation = (generation + 1).saturating_sub(self.base.random.below(3)),
                _ => {}
            }
        }
        let request = if !self.base.honest && self.base.random.one_in(8) {
            LeaseRequest::Release { claims, generation, wake_id }
        } else {
            LeaseRequest::Report { claims, generation, wake_id, acks, done }
        };
        Command::Lease { tenant: self.tenant.clone(), name, request }
    }

    /// What an agent makes of the answer to its report.
    pub(crate) fn agent_told(&mut self, id: u64, command: &Command, outcome: &Outcome) -> Checked {
        let expires_at = self.base.now + self.timings.token_ttl_ms;
        let Some(agent) = self.agents.iter_mut().find(|agent| agent.id == id) else {
            return Ok(());
        };
        agent.busy = false;
        let done = match command {
            Command::Report(report) => report.done,
            Command::Lease { request: LeaseRequest::Report { done, .. }, .. } => *done,
            _ => true,
        };
        match outcome {
            Ok(Answer::Reported(standing)) => {
                if !standing.streams.is_empty() {
                    agent.paths = standing.streams.iter().map(|(path, _)| path.clone()).collect();
                }
                if standing.epoch == agent.epoch {
                    agent.claims.expires_at = expires_at;
                }
                agent.retired |= done;
            }
            Ok(_) => agent.retired = true,
            Err(Failure::Unavailable(_)) => {}
            Err(Failure::Refused(Refused::TokenExpired { .. })) => {
                agent.claims.expires_at = expires_at;
            }
            // Perhaps it is not followed any more.
            Err(Failure::Refused(Refused::Consumer(Rejected::InvalidOffset { path }))) => {
                agent.paths.retain(|it| it.as_str() != &**path);
            }
            Err(Failure::Refused(
                Refused::Append { .. } | Refused::Consumer(Rejected::AlreadyClaimed),
            )) => {}
            Err(_) => agent.retired = true,
        }
        Ok(())
    }

    /// A worker asks for the work of a subscription that is pulled.
    pub(crate) fn claimed(&mut self, name: &str, outcome: &Outcome) -> Checked {
        let Ok(Answer::Leased(lease)) = outcome else {
            return Ok(());
        };
        let named = self.seen.named(reveille_core::consumer::Dialect::Leases, name);
        let Some(subscription) = named.cloned() else {
            return Ok(());
        };
        if !self.history.claimed.insert((subscription.id, lease.generation)) {
            let what = format!("{name} gave generation {} to two workers", lease.generation);
            return Err(violated(what));
        }
        let consumer = ConsumerKey { subscription: subscription.id, path: None };
        let Some(record) = self.seen.consumers.get(&consumer) else {
            return Ok(());
        };
        let reader = self.life().shared.state.reader();
        let streams = outbound::streams(&reader, &subscription, record);
        let streams = streams.map_err(|error| violated(format!("no streams: {error}")))?;
        let told = WakeAttempt { consumer, epoch: lease.generation, attempt: 1 };
        self.wake_agent(&subscription.into(), &told, lease.wake_id, 0, streams);
        Ok(())
    }

    /// After a crash nobody hears answers; whoever waits for one asks again.
    pub(crate) fn agents_lose_touch(&mut self) {
        for agent in &mut self.agents {
            agent.busy = false;
        }
    }
}

/// An append of a few bytes that are found again.
pub(crate) fn text(token: &str) -> Append {
    let kind = ContentType::parse("text/plain");
    let body = Body::new(Bytes::from(format!("{token};")), kind.as_ref());
    Append { content_type: kind, body, ..Append::default() }
}
