//! Telling consumers: takes attempts out of the outbox, makes them, and brings home what came of
//! them.

use std::sync::Arc;

use reveille_core::consumer::{Answer as Ending, Dialect, Phase, Stage};
use reveille_core::subscription::{Subscription, Target, Timings};
use reveille_core::{Offset, StreamPath};
use reveille_deliver::courier::{Answer, Courier, Request, SendError};
use reveille_deliver::destination::{Destination, Rules};
use reveille_store::keys::{self, ConsumerKey};
use reveille_store::record::{self, Enrolled};
use reveille_store::state::Reader;

use crate::command::Command;
use crate::command::consumer::Ended;
use crate::committer::Shared;
use crate::doors::Clock;
use crate::effect::Told;
use crate::failure::Failure;
use crate::herald::{Herald, Notice, NoticeStream};
use crate::keyring::Keyring;
use crate::limits::{NOTICE_STREAMS_MAX, SLOW_AFTER_MS};
use crate::{due, engine, reading};

/// Everything that telling takes.
pub(crate) struct Outbound {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) courier: Arc<dyn Courier>,
    pub(crate) herald: Arc<dyn Herald>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) rules: Rules,
    pub(crate) timings: Timings,
}

/// Makes attempts until the partition stops.
pub(crate) async fn run(outbound: Arc<Outbound>) {
    loop {
        while let Some(told) = outbound.shared.outbox.next() {
            tokio::spawn(outbound.clone().attempt(told));
        }
        if outbound.shared.lock().stopping {
            return;
        }
        outbound.shared.outbox.ready.notified().await;
    }
}

impl Outbound {
    async fn attempt(self: Arc<Outbound>, told: Told) {
        let mut slow = false;
        let notice = self.notice(&told);
        if let Some((notice, destination)) = notice {
            let started = self.clock.now();
            let answer = self.send(&notice, destination, &mut slow).await;
            let took = self.clock.now().since(started);
            self.shared.metrics.attempted(&answer, took);
            let ended = self.judge(&told, &notice, answer);
            self.report(ended).await;
        }
        self.shared.outbox.ended(&told, slow);
    }

    /// Sends a notice and waits for its answer; one that takes long makes room for others.
    async fn send(
        &self,
        notice: &Notice,
        destination: Result<Destination, String>,
        slow: &mut bool,
    ) -> Result<Answer, String> {
        let destination = destination?;
        let message = self.herald.message(notice);
        let (headers, body) = (message.headers, message.body);
        let mut posting = self.courier.post(Request { destination, headers, body });
        let deadline = self.clock.now() + self.timings.webhook_timeout_ms;
        let mut slow_at = self.clock.now() + SLOW_AFTER_MS;
        loop {
            let until = slow_at.min(deadline);
            tokio::select! {
                biased;
                answer = &mut posting => return answer.map_err(|error| error.to_string()),
                () = self.clock.sleep_until(until) => {}
            }
            if until == deadline {
                return Err(SendError::TimedOut.to_string());
            }
            *slow = self.shared.outbox.slows();
            slow_at = deadline;
        }
    }

    fn judge(&self, told: &Told, notice: &Notice, answer: Result<Answer, String>) -> Ended {
        let (answer, error) = match answer {
            Ok(answer) if (200..300).contains(&answer.status) => {
                if !answer.truncated && self.herald.is_done(&answer.body) {
                    (Ending::Done(announced(&notice.streams)), None)
                } else {
                    (Ending::Accepted, None)
                }
            }
            Ok(answer) => (Ending::Failed, Some(format!("answered {}", answer.status))),
            Err(error) => (Ending::Failed, Some(error)),
        };
        Ended { told: told.clone(), answer, error: error.map(Into::into) }
    }

    /// What came of an attempt is written down, however long that takes: until then nobody makes
    /// the next one.
    async fn report(&self, ended: Ended) {
        let command = Command::Ended(ended);
        loop {
            match engine::run(&self.shared, self.clock.as_ref(), &command).await {
                Err(Failure::Unavailable(crate::failure::Unavailable::Busy)) => {
                    let later = self.clock.now() + due::PAUSE_MS;
                    self.clock.sleep_until(later).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "an answer could not be written down");
                    return;
                }
                Ok(_) => return,
            }
        }
    }

    /// What is to be said, if the attempt is still to be made; and to whom.
    fn notice(&self, told: &Told) -> Option<(Notice, Result<Destination, String>)> {
        let subscription = self.shared.lock().registry.get(told.consumer.subscription).cloned()?;
        let reader = self.shared.state.reader();
        let found = current(&reader, &subscription, told);
        let (enrolled, streams) = match found {
            Ok(found) => found?,
            Err(error) => {
                tracing::error!(%error, "a consumer cannot be told");
                return None;
            }
        };
        let Target::Webhook(url) = &subscription.asked.target else {
            return None;
        };
        let destination = Destination::parse(url, &self.rules).map_err(|error| error.to_string());
        let now = self.clock.now();
        let token = self.keyring.mint(
            &subscription,
            told.consumer.path.as_ref(),
            enrolled.primary,
            told.epoch,
            now + self.timings.token_ttl_ms,
        );
        let notice = Notice {
            primary: told.consumer.path.clone(),
            epoch: told.epoch,
            wake_id: enrolled.consumer.wake_id?,
            streams,
            token,
            now,
            signing: self.keyring.signing(),
            traceparent: None,
            subscription,
        };
        Some((notice, destination))
    }
}

/// The consumer that an attempt is to tell, and the streams to tell it of; `None` if the attempt is
/// no longer to be made.
#[allow(clippy::type_complexity, reason = "a record and its streams, or neither")]
pub fn current(
    reader: &Reader,
    subscription: &Subscription,
    told: &Told,
) -> Result<Option<(Enrolled, Vec<NoticeStream>)>, Failure> {
    let Some(enrolled) = enrolled(reader, &told.consumer)? else {
        return Ok(None);
    };
    let Phase::Waking { attempt, stage: Stage::Sent { .. } } = enrolled.consumer.phase else {
        return Ok(None);
    };
    if enrolled.consumer.epoch != told.epoch || attempt != told.attempt {
        return Ok(None);
    }
    let streams = streams(reader, subscription, &enrolled)?;
    Ok(Some((enrolled, streams)))
}

/// What a notice announces: streams with work, and where they end.
pub fn announced(streams: &[NoticeStream]) -> Vec<(StreamPath, Offset)> {
    let pending = streams.iter().filter(|it| it.is_pending());
    pending.filter_map(|it| Some((it.path.clone(), it.tail?))).collect()
}

/// A consumer as it is kept.
pub(crate) fn enrolled(reader: &Reader, key: &ConsumerKey) -> Result<Option<Enrolled>, Failure> {
    let value = reader.get(&keys::consumer(key)).map_err(reading::damaged)?;
    let read = value.map(|value| record::decode_consumer(&value)).transpose();
    read.map_err(|error| Failure::Damaged(error.to_string()))
}

/// The streams that a consumer is to be told of.
pub fn streams(
    reader: &Reader,
    subscription: &Subscription,
    enrolled: &Enrolled,
) -> Result<Vec<NoticeStream>, Failure> {
    let tenant = &subscription.tenant;
    let tail = |path: &StreamPath, id| -> Result<Option<Offset>, Failure> {
        let head = reading::head(reader, tenant, path)?;
        let head = head.filter(|head| !head.soft_deleted);
        Ok(head.filter(|head| id == Some(head.id)).map(|head| head.tail))
    };
    let mut found = Vec::new();
    match subscription.asked.dialect {
        Dialect::Webhooks => {
            for link in &enrolled.consumer.links {
                let (path, acked) = (link.path.clone(), link.acked);
                let tail = tail(&path, link.stream)?;
                found.push(NoticeStream { path, acked, tail, explicit: true });
            }
        }
        Dialect::Leases => {
            let (from, to) = keys::backlogs(subscription.id);
            let marks = reader.keys(&from, &to, NOTICE_STREAMS_MAX).map_err(reading::damaged)?;
            for path in marks.iter().filter_map(|key| keys::parse_linked(key)) {
                let key = keys::link(subscription.id, &path);
                let Some(value) = reader.get(&key).map_err(reading::damaged)? else { continue };
                let linked = record::decode_link(&value)
                    .map_err(|error| Failure::Damaged(error.to_string()))?;
                let tail = tail(&path, linked.stream)?;
                let (acked, explicit) = (linked.acked, linked.explicit);
                found.push(NoticeStream { path, acked, tail, explicit });
            }
        }
    }
    Ok(found)
}
