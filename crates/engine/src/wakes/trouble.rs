//! Consumers that somebody should look at: each is counted, and one of a subscription is named in
//! the log, once a minute for each kind of trouble.

use reveille_core::StreamPath;
use reveille_core::subscription::{Subscription, Target};

use super::index::SubscriptionIndex;
use crate::app::{Part, Shared};
use crate::complaints::{Complaints, host_of};
use crate::effect::{ConsumerComplaint, ConsumerTrouble};
use crate::metrics::WakeMetrics;

/// When each subscription was last complained about, by what was wrong.
#[derive(Default)]
pub(crate) struct WakeComplaints {
    fruitless: Complaints,
    silent: Complaints,
    given_up: Complaints,
}

impl Part for WakeComplaints {}

impl WakeComplaints {
    fn of(&self, trouble: ConsumerTrouble) -> &Complaints {
        match trouble {
            ConsumerTrouble::Fruitless => &self.fruitless,
            ConsumerTrouble::Silent => &self.silent,
            ConsumerTrouble::GivenUp => &self.given_up,
        }
    }
}

/// Counts a consumer that is in trouble, and names it.
pub(crate) fn tell_operators(shared: &Shared, complaint: &ConsumerComplaint) {
    let ConsumerComplaint { consumer, trouble, at } = complaint;
    shared.domains.part::<WakeMetrics>().complained(*trouble);
    let complaints = shared.domains.part::<WakeComplaints>().of(*trouble);
    if !complaints.is_due(consumer.subscription.0, *at) {
        return;
    }
    let known = shared.lock().index.of::<SubscriptionIndex>().get(consumer.subscription).cloned();
    let Some(known) = known else { return };
    let (subscription, tenant) = (&*known.spec.name, known.tenant.as_str());
    let stream = consumer.path.as_ref().map(StreamPath::as_str);
    let host = host(&known);
    match trouble {
        ConsumerTrouble::Fruitless => tracing::warn!(
            subscription,
            stream,
            tenant,
            host,
            "a consumer says that it is done and acknowledges nothing, again and again: it is \
             woken with pauses now; send `acks` with `done`"
        ),
        ConsumerTrouble::Silent => tracing::warn!(
            subscription,
            stream,
            tenant,
            host,
            "a consumer took a wake on and was not heard of again in time: its work is given to \
             somebody else"
        ),
        ConsumerTrouble::GivenUp => tracing::warn!(
            subscription,
            stream,
            tenant,
            host,
            "a consumer was given up: its endpoint failed for too long; repair it, then \
             `reveille consumers revive`"
        ),
    }
}

/// Who is called, without what may be secret in a URL; none where workers come by themselves.
pub(super) fn host(subscription: &Subscription) -> Option<&str> {
    match &subscription.spec.target {
        Target::Webhook(url) => Some(host_of(url)),
        Target::Pull(_) => None,
    }
}
