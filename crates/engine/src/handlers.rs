//! The domains of this engine, registered: which of them keeps what, and which of them is asked when
//! an effect, a timer or an attempt is theirs.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::id::DeliveryNo;
use reveille_core::subscription::Subscription;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::committer::EffectHandler;
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::outbound::{AttemptHandler, OutcomeQueue, Sender};
use reveille_kernel::timers::{DueTimer, TimerHandler, TimerTraits};
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::streams::StreamTimer;
use reveille_schema::wakes::WakeTimer;

use crate::app::{App, Indexes, Settings, Shared, Txn};
use crate::auth::keys::{ApiKeys, KeyCounts};
use crate::deliveries::delivery::DeliveryOutcome;
use crate::deliveries::ended::EndedHookIndex;
use crate::deliveries::face::{DeliveryFaces, FaceTimer};
use crate::deliveries::gauges::HookGauges;
use crate::deliveries::index::HookIndex;
use crate::deliveries::limits::HookLimits;
use crate::deliveries::replay::ReplayPreviews;
use crate::deliveries::send::DeliverySender;
use crate::deliveries::timers::FireDeliveryTimer;
use crate::documents::face::DocumentFace;
use crate::effect::{Attempt, AttemptSource, Effect};
use crate::events::face::EventFace;
use crate::facts::face::FactFace;
use crate::matching::Shares;
use crate::metrics::{DeliveryMetrics, TriggerMetrics, WakeMetrics};
use crate::outbound::OutboundContext;
use crate::secrets::TenantSecrets;
use crate::spans::SpanCollector;
use crate::streams::access_times::AccessTimes;
use crate::streams::lifetime::FireStreamTimer;
use crate::streams::live::LiveReaders;
use crate::streams::observer::StreamObservers;
use crate::triggers::hooks::TriggerHooks;
use crate::wakes::consumer::WakeOutcome;
use crate::wakes::gauges::SubscriptionGauges;
use crate::wakes::index::SubscriptionIndex;
use crate::wakes::observer::WakeConsumers;
use crate::wakes::send::WakeSender;
use crate::wakes::timers::FireWakeTimer;
use crate::wakes::trouble::WakeComplaints;
use crate::wall::WallOffset;
use crate::{deliveries, wakes};

impl App {
    /// All domains of a partition that starts now.
    pub fn with_domains(settings: Settings, now: Millis) -> App {
        let wall = WallOffset::default();
        let app = App::new(settings);
        let limits = HookLimits::of(app.outbox.clone());
        app.with(LiveReaders::default())
            .with(AccessTimes::following(now, wall.clone()))
            .with(wall)
            .with(StreamObservers(vec![Box::new(WakeConsumers)]))
            .with(DeliveryFaces::default())
            .with(ReplayPreviews::default())
            .with(ApiKeys::default())
            .with(WakeMetrics::default())
            .with(WakeComplaints::default())
            .with(SubscriptionGauges::default())
            .with(DeliveryMetrics::default())
            .with(TriggerMetrics::default())
            .with(TenantSecrets::default())
            .with(HookGauges::default())
            .with(limits)
            .with(SpanCollector::default())
            .with(Shares::default())
            .with_index_of(SubscriptionIndex::new)
            .with_index::<HookIndex>()
            .with_index::<EndedHookIndex>()
            .with_index::<KeyCounts>()
            .with_face(EventFace)
            .with_face(DocumentFace::with_hooks(TriggerHooks))
            .with_face(FactFace::default())
    }
}

impl EffectHandler for App {
    fn perform(shared: &Shared, effects: Vec<Effect>) {
        let domains = &shared.domains;
        let (mut attempts, mut news) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::SendWake(wake) => attempts.push(Attempt::Wake(wake)),
                Effect::SendDelivery(delivery) => attempts.push(Attempt::Delivery(delivery)),
                Effect::CountActivity(change) => domains.part::<WakeMetrics>().moved(&change),
                Effect::CountLoad(change) => domains.part::<SubscriptionGauges>().changed(&change),
                Effect::Complain(complaint) => wakes::trouble::tell_operators(shared, &complaint),
                Effect::CountWork { tenant, work } => domains.part::<Shares>().count(&tenant, work),
                Effect::CountDeadLetter(why) => domains.part::<DeliveryMetrics>().died(why),
                Effect::CountEvaluationErrors { hook, count } => {
                    domains.part::<TriggerMetrics>().failed(hook, count);
                }
                Effect::CountTriggerAttempt(attempt) => {
                    domains.part::<TriggerMetrics>().attempted(attempt);
                }
                Effect::CountRollback(hook) => domains.part::<TriggerMetrics>().rolled_back(hook),
                Effect::CountReplayed { result, count } => {
                    domains.part::<DeliveryMetrics>().replayed(result, count);
                }
                Effect::ReleaseReaders(id) => {
                    domains.part::<AccessTimes>().forget(id, Millis::NEVER);
                    news.push(effect);
                }
                Effect::NotifyReaders { .. } => news.push(effect),
            }
        }
        shared.outbox.push_all(attempts);
        domains.part::<LiveReaders>().publish(news);
    }
}

/// What a timer of any domain asks for.
#[derive(Debug, Clone)]
pub enum FireTimer {
    Stream(FireStreamTimer),
    Wake(FireWakeTimer),
    Delivery(FireDeliveryTimer),
    /// Of a face.
    Face(FaceTimer),
}

impl FireTimer {
    /// How many keys it removes, for one that clears up in slices.
    pub fn removals(&self) -> usize {
        match self {
            FireTimer::Stream(timer) => timer.removals(),
            FireTimer::Wake(timer) => timer.removals(),
            FireTimer::Delivery(timer) => timer.removals(),
            FireTimer::Face(_) => 0,
        }
    }

    fn inner(&self) -> &dyn Command<App, Answer = (), Rejection = Never> {
        match self {
            FireTimer::Stream(timer) => timer,
            FireTimer::Wake(timer) => timer,
            FireTimer::Delivery(timer) => timer,
            FireTimer::Face(timer) => &**timer,
        }
    }
}

impl Command<App> for FireTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        self.inner().decide(txn)
    }

    fn weight(&self) -> usize {
        self.inner().weight()
    }

    fn is_urgent(&self, effects: &[Effect]) -> bool {
        self.inner().is_urgent(effects)
    }

    fn not_before(&self) -> Millis {
        self.inner().not_before()
    }
}

impl TimerHandler for App {
    type Command = FireTimer;

    fn timer_traits(timer: &[u8]) -> TimerTraits {
        match timer.first() {
            Some(&StreamTimer::DOMAIN) => FireStreamTimer::TRAITS,
            Some(&WakeTimer::DOMAIN) => FireWakeTimer::traits(timer),
            Some(&DeliveryTimer::DOMAIN) => FireDeliveryTimer::traits(timer),
            // Those of a face may be slices of something large.
            _ => TimerTraits { fires_once: false, is_patient: true, reads: true },
        }
    }

    fn timer_command(shared: &Shared, timer: DueTimer) -> Result<FireTimer, Damaged> {
        match timer.name().first() {
            Some(&StreamTimer::DOMAIN) => {
                FireStreamTimer::new(&shared.state.reader(), timer).map(FireTimer::Stream)
            }
            Some(&WakeTimer::DOMAIN) => FireWakeTimer::new(shared, timer).map(FireTimer::Wake),
            Some(&DeliveryTimer::DOMAIN) => {
                FireDeliveryTimer::new(shared, timer).map(FireTimer::Delivery)
            }
            Some(face) => {
                let face = shared.domains.part::<DeliveryFaces>().get(FaceId(*face))?;
                face.timer(shared, timer).map(FireTimer::Face)
            }
            None => Err(Damaged::new("a timer of no domain is due")),
        }
    }
}

/// What sending takes, domain by domain.
pub struct Outbound {
    pub(crate) context: OutboundContext,
    pub(crate) wakes: WakeSender,
    pub(crate) deliveries: DeliverySender,
}

impl Outbound {
    pub(crate) fn wake_outcomes(&self) -> &OutcomeQueue<WakeOutcome, Attempt> {
        &self.wakes.outcomes
    }

    pub(crate) fn delivery_outcomes(&self) -> &OutcomeQueue<DeliveryOutcome, Attempt> {
        &self.deliveries.outcomes
    }
}

/// Whose attempt it is.
pub enum AttemptOwner {
    Subscription(Arc<Subscription>),
    Hook(Arc<Hook>),
}

impl AttemptHandler for App {
    type Outbound = Outbound;
    type Owner = AttemptOwner;

    fn owner(index: &Indexes, attempt: &Attempt) -> Option<AttemptOwner> {
        match attempt {
            Attempt::Wake(wake) => {
                let known = index.of::<SubscriptionIndex>().get(wake.consumer.subscription);
                known.cloned().map(AttemptOwner::Subscription)
            }
            Attempt::Delivery(delivery) => {
                let known = index.of::<HookIndex>().get(delivery.id.hook);
                known.cloned().map(AttemptOwner::Hook)
            }
        }
    }

    async fn attempt(
        sender: &Sender<App>,
        attempt: Attempt,
        owner: AttemptOwner,
    ) -> Option<Attempt> {
        let Outbound { context, wakes, deliveries } = &sender.outbound;
        match (attempt, owner) {
            (Attempt::Wake(wake), AttemptOwner::Subscription(subscription)) => {
                wakes::send::attempt(sender, context, wakes, wake, subscription).await
            }
            (Attempt::Delivery(delivery), AttemptOwner::Hook(hook)) => {
                deliveries::send::attempt(sender, context, deliveries, delivery, hook).await
            }
            (attempt, _) => {
                sender.shared.outbox.ended(&attempt);
                None
            }
        }
    }

    fn refill(shared: &Shared, source: AttemptSource, from: DeliveryNo) {
        if let AttemptSource::Hook(hook) = source {
            deliveries::send::refill(shared, hook, from);
        }
    }

    fn recover_attempts(shared: &Shared) {
        if let Err(error) = deliveries::send::recover(shared) {
            tracing::error!(%error, "deliveries that were on their way cannot be read");
        }
    }
}

/// The partition becomes the writer: what was on its way is made again, and who is busy is counted.
/// Nothing may have been decided before.
pub fn recover(shared: &Shared, now: Millis) {
    shared.domains.part::<AccessTimes>().restart(now);
    if let Err(error) = wakes::send::recover(shared, now) {
        tracing::error!(%error, "the due index cannot be read");
    }
}
