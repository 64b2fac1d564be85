//! What settings may be, where their form alone does not tell.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::event::worker::Binding;
use reveille_core::fact::subscription::REPLAY_WINDOW_S_DEFAULT;
use reveille_core::subscription::Timings;
use reveille_core::trigger::limits::TRIGGER_WAIT_MS_MIN;
use reveille_deliver::client::Authorities;
use reveille_engine::quota::Quotas;
use reveille_server::{Auth, FactSettings, Workers};

use super::units::{
    AdminKey, Period, PublicUrl, WakeStreamTemplate, WorkerBinding, WorkerUrlTemplate,
};
use super::{AuthKind, MAX_BODY_LIMIT_BYTES, OUTBOUND_MAX, PERIOD_LIMIT_MS, Settings};
use crate::failure::usage_error;
use crate::otlp;

const RETAIN_DEFAULT_MS: u64 = 30 * 86_400_000;
const PERIOD_TOO_LONG_MS: u64 = PERIOD_LIMIT_MS + 1;

impl Settings {
    pub(super) fn timings(&self) -> anyhow::Result<Timings> {
        let default = Timings::default();
        let timings = Timings {
            webhook_timeout_ms: ms(self.webhook_timeout, default.webhook_timeout_ms),
            waking_timeout_ms: ms(self.waking_timeout, default.waking_timeout_ms),
            liveness_timeout_ms: ms(self.liveness_timeout, default.liveness_timeout_ms),
            token_ttl_ms: ms(self.callback_token_ttl, default.token_ttl_ms),
            give_up_after_ms: ms(self.consumer_gc_after, default.give_up_after_ms),
            retry_scale_milli: self.retry_scale.map_or(1_000, |factor| factor.thousandths),
            keep_given_up_ms: check_retention("--retain-deliveries", self.retain_deliveries)?,
        };
        for (flag, value) in [
            ("--webhook-timeout", timings.webhook_timeout_ms),
            ("--waking-timeout", timings.waking_timeout_ms),
            ("--liveness-timeout", timings.liveness_timeout_ms),
            ("--callback-token-ttl", timings.token_ttl_ms),
            ("--consumer-gc-after", timings.give_up_after_ms),
        ] {
            if value == 0 {
                return Err(usage_error(format!("{flag} must be longer than 0")));
            }
            if value > PERIOD_LIMIT_MS {
                return Err(usage_error(format!("{flag} must be at most 3650d")));
            }
        }
        Ok(timings)
    }
}

/// Nobody's endpoint is worth a longer wait.
const TRIGGER_TIMEOUT_LIMIT_MS: u64 = 3_600_000;
const TRIGGER_TIMEOUT_DEFAULT_MS: u64 = 30_000;

impl Settings {
    /// How much each tenant may have.
    pub(super) fn quotas(&self) -> anyhow::Result<Quotas> {
        let default = Quotas::default();
        Ok(Quotas {
            subscriptions: self.max_subscriptions.unwrap_or(default.subscriptions),
            hooks: self.max_hooks.unwrap_or(default.hooks),
            triggers: self.max_triggers.unwrap_or(default.triggers),
            keys: check_max_keys(self.max_keys.unwrap_or(default.keys))?,
        })
    }

    /// The longest time that a trigger may give its calls.
    pub(super) fn max_trigger_timeout(&self) -> anyhow::Result<u64> {
        let longest = ms(self.max_trigger_timeout, TRIGGER_TIMEOUT_DEFAULT_MS);
        if !(TRIGGER_WAIT_MS_MIN..=TRIGGER_TIMEOUT_LIMIT_MS).contains(&longest) {
            return Err(usage_error(format!(
                "--max-trigger-timeout must be from {TRIGGER_WAIT_MS_MIN}ms to 1h"
            )));
        }
        Ok(longest)
    }
}

/// Each of them is a step of a partition, in which nobody else has a turn.
const OPS_LIMIT: usize = 2_000;
/// A page ends at a mebibyte anyway.
const QUERY_LIMIT_LIMIT: usize = 10_000;
/// All of them are read for one answer.
const SCAN_LIMIT_LIMIT: u64 = 1_000_000;
/// Nobody waits longer for an answer.
const TRANSACTION_TIMEOUT_LIMIT_MS: u64 = 600_000;

impl Settings {
    pub(super) fn documents(&self) -> anyhow::Result<DocumentSettings> {
        let default = DocumentSettings::default();
        let settings = DocumentSettings {
            ops_max: self.max_ops.unwrap_or(default.ops_max),
            query_limit_max: self.query_limit_max.unwrap_or(default.query_limit_max),
            scan_limit: self.scan_limit.unwrap_or(default.scan_limit),
            transaction_timeout_ms: ms(self.transaction_timeout, default.transaction_timeout_ms),
            conflict_delay_ms: ms(self.conflict_delay, default.conflict_delay_ms),
            idempotency_ttl_ms: ms(self.idempotency_ttl, default.idempotency_ttl_ms),
            tombstone_ttl_ms: ms(self.tombstone_ttl, default.tombstone_ttl_ms),
            trigger_calls_per_s: self.trigger_calls.unwrap_or(default.trigger_calls_per_s),
        };
        let wrong = |sentence: String| Err(usage_error(sentence));
        if !(1..=OPS_LIMIT).contains(&settings.ops_max) {
            return wrong(format!("--max-ops must be from 1 to {OPS_LIMIT}"));
        }
        if !(1..=QUERY_LIMIT_LIMIT).contains(&settings.query_limit_max) {
            return wrong(format!("--query-limit-max must be from 1 to {QUERY_LIMIT_LIMIT}"));
        }
        if settings.scan_limit > SCAN_LIMIT_LIMIT {
            return wrong(format!("--scan-limit must be at most {SCAN_LIMIT_LIMIT}"));
        }
        if !(1..=TRANSACTION_TIMEOUT_LIMIT_MS).contains(&settings.transaction_timeout_ms) {
            return wrong("--transaction-timeout must be longer than 0 and at most 10m".to_owned());
        }
        if settings.conflict_delay_ms >= settings.transaction_timeout_ms {
            return wrong("--conflict-delay must be shorter than --transaction-timeout".to_owned());
        }
        for (flag, period) in [
            ("--idempotency-ttl", settings.idempotency_ttl_ms),
            ("--tombstone-ttl", settings.tombstone_ttl_ms),
        ] {
            if !(1..=PERIOD_LIMIT_MS).contains(&period) {
                return wrong(format!("{flag} must be longer than 0 and at most 3650d"));
            }
        }
        Ok(settings)
    }
}

/// By which name the protocol of facts knows the setting.
const REPLAY_SECONDS: &str = "STIGMEM_SUBSCRIPTION_REPLAY_S";

/// The window that a variable of that name asks for.
pub(super) fn replay_window_of_protocol() -> anyhow::Result<Option<Period>> {
    let Ok(text) = std::env::var(REPLAY_SECONDS) else { return Ok(None) };
    let seconds: Option<u64> = text.trim().parse().ok();
    let ms = seconds.and_then(|seconds| seconds.checked_mul(1_000)).ok_or_else(|| {
        usage_error(format!("{REPLAY_SECONDS} is a number of seconds, and not {text:?}"))
    })?;
    Ok(Some(Period { ms }))
}

/// What subscriptions to facts may do; the window is in whole seconds.
pub(super) fn check_facts(
    template: Option<WakeStreamTemplate>,
    period: Option<Period>,
) -> anyhow::Result<FactSettings> {
    let seconds = period.map_or(REPLAY_WINDOW_S_DEFAULT, |period| period.ms.div_ceil(1_000));
    if seconds == 0 || seconds > PERIOD_LIMIT_MS / 1_000 {
        return Err(usage_error("--replay-window must be longer than 0 and at most 3650d"));
    }
    let wake_template = template.map(|template| template.0);
    Ok(FactSettings { wake_template, replay_window_s: seconds })
}

/// What is wrong with the file is said at the start, not at the first webhook.
pub(super) fn check_ca_file(path: Option<&Path>) -> anyhow::Result<Authorities> {
    let Some(path) = path else { return Ok(Authorities::default()) };
    let pem = std::fs::read(path)
        .with_context(|| format!("--ca-file: cannot read {}", path.display()))?;
    Authorities::from_pem(&pem)
        .map_err(|error| usage_error(format!("--ca-file {}: {error}", path.display())))
}

fn ms(period: Option<Period>, default: u64) -> u64 {
    period.map_or(default, |period| period.ms)
}

/// Nobody opens a server without keys to the network by accident.
pub(super) fn check_exposure(
    listen: SocketAddr,
    auth: &Auth,
    insecure: bool,
) -> anyhow::Result<()> {
    if listen.ip().to_canonical().is_loopback() || insecure || matches!(auth, Auth::Keys { .. }) {
        return Ok(());
    }
    Err(usage_error(format!(
        "{listen} is not a loopback address: without --auth keys everybody who reaches it could \
         read and write everything; pass --auth keys, listen on 127.0.0.1, or pass --insecure if \
         that is what you want"
    )))
}

/// Settings that only mean something with keys are not ignored without them.
pub(super) fn check_auth(
    kind: Option<AuthKind>,
    admin_key: Option<AdminKey>,
    metrics_open: bool,
) -> anyhow::Result<Auth> {
    match (kind, admin_key) {
        (Some(AuthKind::Keys), admin_key) => {
            Ok(Auth::Keys { admin_key: admin_key.map(|key| key.0), metrics_open })
        }
        (None | Some(AuthKind::Off), None) => Ok(Auth::Off),
        (None | Some(AuthKind::Off), Some(_)) => Err(usage_error(
            "--admin-key is of no use without --auth keys: the server would ask nobody for it",
        )),
    }
}

pub(super) fn check_max_body(bytes: u64) -> anyhow::Result<usize> {
    if bytes == 0 || bytes > MAX_BODY_LIMIT_BYTES {
        return Err(usage_error("--max-body must be more than 0 and at most 32MiB"));
    }
    Ok(usize::try_from(bytes)?)
}

/// A tenant that can have no key is none.
fn check_max_keys(count: usize) -> anyhow::Result<usize> {
    match count {
        0 => Err(usage_error("--max-keys must be at least 1")),
        count => Ok(count),
    }
}

/// What is over must be kept for a while: somebody may want to look at it.
pub(super) fn check_retention(flag: &str, period: Option<Period>) -> anyhow::Result<u64> {
    let retention = ms(period, RETAIN_DEFAULT_MS);
    match retention {
        0 => Err(usage_error(format!("{flag} must be longer than 0"))),
        PERIOD_TOO_LONG_MS.. => Err(usage_error(format!("{flag} must be at most 3650d"))),
        _ => Ok(retention),
    }
}

/// How many calls may be on their way at once.
pub(super) fn check_concurrency(flag: &str, calls: u32) -> anyhow::Result<usize> {
    if !(1..=OUTBOUND_MAX).contains(&calls.into()) {
        return Err(usage_error(format!("{flag} must be from 1 to {OUTBOUND_MAX}")));
    }
    Ok(usize::try_from(calls)?)
}

/// A binding's name means one address.
pub(super) fn check_workers(
    template: Option<WorkerUrlTemplate>,
    bindings: Option<Vec<WorkerBinding>>,
) -> anyhow::Result<Workers> {
    let mut workers = Workers::default();
    if let Some(WorkerUrlTemplate(template)) = template {
        workers.template = template;
    }
    let mut known: Vec<Binding> = Vec::new();
    for WorkerBinding(binding) in bindings.unwrap_or_default() {
        if known.iter().any(|other| other.name == binding.name) {
            return Err(usage_error(format!(
                "--binding {}: the name is given twice",
                binding.name
            )));
        }
        known.push(binding);
    }
    workers.bindings = known.into();
    Ok(workers)
}

pub(super) fn check_otlp_endpoint(url: PublicUrl) -> anyhow::Result<Arc<str>> {
    match otlp::destination(&url.0) {
        Ok(_) => Ok(url.0.into()),
        Err(error) => Err(usage_error(format!("--otlp-endpoint {}: {error}", url.0))),
    }
}
