//! Consumers in the background whose endpoints do not respond: dead ones and hanging ones.

use std::fmt;
use std::time::Duration;

use anyhow::ensure;

use crate::clock;
use crate::create::create_requests;
use crate::dialect::Dialect;
use crate::message::MessageWriter;
use crate::pool;
use crate::sink::Sink;
use crate::target::Streams;

const CONNECTIONS: usize = 64;
/// Consumers of one subscription: fewer than a server sends to one at once, so that as many hang
/// as were asked for.
const PER_SUBSCRIPTION: u64 = 250;
/// By then every hanging consumer was called.
const CALLING_MAX: Duration = Duration::from_secs(60);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnresponsiveConsumers {
    /// Consumers whose endpoint refuses every connection.
    pub(crate) dead: u64,
    /// Consumers whose endpoint never answers.
    pub(crate) hanging: u64,
}

impl UnresponsiveConsumers {
    /// Wakes all of them once; from then on the server keeps trying.
    pub(crate) async fn start(
        self,
        dialect: Dialect,
        streams: &Streams,
        sink: &Sink,
        messages: &MessageWriter,
        settle: Duration,
    ) -> anyhow::Result<()> {
        if self.dead + self.hanging == 0 {
            return Ok(());
        }
        for (kind, count, url) in
            [("dead", self.dead, sink.dead_url()?), ("hanging", self.hanging, sink.hanging_url())]
        {
            for first in (0..count).step_by(usize::try_from(PER_SUBSCRIPTION)?) {
                let group = streams.group(&format!("{kind}-{first}"));
                let members = PER_SUBSCRIPTION.min(count - first);
                dialect.subscribe(&group, &url, members, CONNECTIONS).await?;
                let requests = create_requests(&group, members, messages.clone());
                pool::prepare(group.address, CONNECTIONS, requests).await?;
            }
        }
        let called = async {
            while sink.hanging() < self.hanging {
                clock::sleep(ASK_AGAIN_AFTER).await;
            }
        };
        let called = clock::within(CALLING_MAX, called).await.is_some();
        ensure!(called, "{} of {} hanging consumers were called", sink.hanging(), self.hanging);
        clock::sleep(settle).await;
        Ok(())
    }
}

impl fmt::Display for UnresponsiveConsumers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnresponsiveConsumers { dead, hanging } = self;
        if dead + hanging > 0 {
            write!(f, ", beside {dead} dead and {hanging} hanging consumers")?;
        }
        Ok(())
    }
}
