//! What a change of a hook for typed events has changed, for the audit log.

use serde_json::{Value, json};

use super::{EventHookSpec, Retry};
use crate::audit::Diff;

/// One of the things that an owner wishes.
type Field = fn(&EventHookSpec) -> Value;

/// From what its owner wished to what they wish; nothing before a hook is made and after it is
/// ended.
pub fn hook_diff(from: Option<&EventHookSpec>, to: Option<&EventHookSpec>) -> Diff {
    let fields: [(&str, Field); 8] = [
        ("pattern", |it| it.pattern.as_str().into()),
        ("workerId", |it| it.worker.as_str().into()),
        ("workerBinding", |it| it.binding.as_deref().into()),
        ("rpcMethod", |it| it.method.as_str().into()),
        ("maxRetries", |it| it.max_retries.into()),
        ("timeoutMs", |it| it.timeout_ms.into()),
        ("ordered", |it| it.ordered.into()),
        ("retry", |it| retry_json(it.retry)),
    ];
    let mut diff = Diff::default();
    for (name, value) in fields {
        diff = diff.field(name, from.map(value), to.map(value));
    }
    let secret = |it: Option<&EventHookSpec>| it.and_then(|it| it.secret.clone());
    diff.secret("secret", secret(from), secret(to))
}

fn retry_json(retry: Retry) -> Value {
    let Retry { initial_ms, max_ms, give_up_after_ms } = retry;
    json!({ "initial": initial_ms, "max": max_ms, "giveUpAfter": give_up_after_ms })
}
