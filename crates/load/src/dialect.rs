//! The two ways to ask for wakes, and what tells their consumers apart.
//!
//! ```text
//! webhooks   one subscription on a pattern, a consumer for every stream that matches
//! ds         one consumer per subscription, so a subscription for every stream
//! ```

use clap::ValueEnum;
use serde_json::json;

use crate::pool::{self, RequestPlan};
use crate::target::Streams;

/// Where the streams of the `ds` dialect lie; its patterns are relative to it.
const DS_ROOT: &str = "/v1/stream/";

/// How a server is asked for wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// `PUT /PATTERN?subscription=ID`, a consumer per stream.
    Webhooks,
    /// `PUT /v1/stream/__ds/subscriptions/ID`, a consumer per subscription.
    Ds,
}

impl Dialect {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Asks for wakes at `url` of consumers for the streams numbered up to `count`.
    pub(crate) async fn subscribe(
        self,
        streams: &Streams,
        url: &str,
        count: u64,
        connections: usize,
    ) -> anyhow::Result<()> {
        let limit = match self {
            Dialect::Webhooks => 1,
            Dialect::Ds => count,
        };
        let (target, url) = (streams.clone(), url.to_owned());
        let write = Box::new(move |number, request: &mut Vec<u8>| {
            let (path, body) = self.subscription(&target, number, &url);
            target.put_at(&path, body.to_string().as_bytes(), request);
        });
        let requests =
            RequestPlan { limit: Some(limit), expect: 201, bytes: 0, write, ahead_limit: None };
        pool::prepare(streams.address, connections, requests).await
    }

    /// The path and the body of a subscription.
    fn subscription(
        self,
        streams: &Streams,
        number: u64,
        url: &str,
    ) -> (String, serde_json::Value) {
        let base = streams.base();
        let relative = base.strip_prefix(DS_ROOT).unwrap_or(base);
        let id = relative.trim_start_matches('/').replace('/', "-");
        match self {
            Dialect::Webhooks => (format!("{base}/*?subscription={id}"), json!({ "webhook": url })),
            Dialect::Ds => (
                format!("{DS_ROOT}__ds/subscriptions/{id}-{number}"),
                json!({
                    "type": "webhook",
                    "pattern": format!("{relative}/{number}"),
                    "webhook": { "url": url },
                }),
            ),
        }
    }

    /// The number of the consumer that a wake is for.
    pub(crate) fn consumer_in(self, wake: &[u8]) -> Option<u64> {
        let field: &[u8] = match self {
            Dialect::Webhooks => b"\"primary_stream\":\"",
            Dialect::Ds => b"\"subscription_id\":\"",
        };
        let start = wake.windows(field.len()).position(|part| part == field)? + field.len();
        let rest = wake.get(start..)?;
        let text = rest.get(..rest.iter().position(|byte| *byte == b'"')?)?;
        let digits = text.rsplit(|byte| !byte.is_ascii_digit()).next()?;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::streams;

    #[test]
    fn a_subscription_is_asked_for_in_the_words_of_its_dialect() {
        let streams = streams().group("live");
        let (path, body) = Dialect::Webhooks.subscription(&streams, 0, "http://h/live");
        assert_eq!(path, "/v1/stream/bench/r/live/*?subscription=bench-r-live");
        assert_eq!(body, json!({ "webhook": "http://h/live" }));
        let (path, body) = Dialect::Ds.subscription(&streams, 7, "http://h/live");
        assert_eq!(path, "/v1/stream/__ds/subscriptions/bench-r-live-7");
        let webhook = json!({ "url": "http://h/live" });
        let expected =
            json!({ "type": "webhook", "pattern": "bench/r/live/7", "webhook": webhook });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_consumer_is_known_by_its_number() {
        let check = |dialect: Dialect, wake: &str, number| {
            assert_eq!(dialect.consumer_in(wake.as_bytes()), number, "{wake}");
        };
        check(Dialect::Webhooks, r#"{"epoch":1,"primary_stream":"/a/b/42","x":9}"#, Some(42));
        check(Dialect::Ds, r#"{"subscription_id":"a-b-7","generation":3}"#, Some(7));
        check(Dialect::Ds, r#"{"primary_stream":"/a/7"}"#, None);
        check(Dialect::Webhooks, r#"{"primary_stream":"/a/b"}"#, None);
        check(Dialect::Webhooks, r#"{"primary_stream":"/a/7"#, None);
    }
}
