//! Shards: the groups in which subscriptions are counted and listed, by the first word of a type.
//!
//! An event finds the subscriptions of its own shard and those of `default`, which has every
//! pattern whose first segment is no shard's name. So shards never change what is found.

use std::fmt;

use super::{EventPattern, EventType};

/// A group of event types and of the patterns over them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shard {
    /// Changes of records: `collection.users.insert`.
    Collection,
    /// Calls of services: `rpc.UserService.getUser`.
    Rpc,
    /// The life of objects: `do.alarm`.
    Do,
    /// Web sockets: `ws.connect`.
    Ws,
    /// What others sent: `webhook.github.push`.
    Webhook,
    /// Everything else, and every pattern that begins with a wildcard.
    Default,
}

impl Shard {
    /// All of them.
    pub const ALL: [Shard; 6] =
        [Shard::Collection, Shard::Rpc, Shard::Do, Shard::Ws, Shard::Webhook, Shard::Default];

    /// Where events of this type belong.
    pub fn of_type(kind: &EventType) -> Shard {
        Shard::of_segment(kind.segments().next())
    }

    /// Where subscriptions with this pattern belong.
    pub fn of_pattern(pattern: &EventPattern) -> Shard {
        Shard::of_segment(pattern.segments().next())
    }

    /// Where the subscriptions are that an event of this type may find.
    pub fn consulted(kind: &EventType) -> impl Iterator<Item = Shard> {
        let own = Some(Shard::of_type(kind)).filter(|shard| *shard != Shard::Default);
        own.into_iter().chain([Shard::Default])
    }

    /// The shard of this name.
    pub fn parse(name: &str) -> Option<Shard> {
        Shard::ALL.into_iter().find(|shard| shard.name() == name)
    }

    /// Reads `webhook` or `acme:webhook`: the namespace, if one is named, and the shard.
    pub fn parse_label(label: &str) -> Option<(Option<&str>, Shard)> {
        let (namespace, name) = match label.split_once(':') {
            Some(("", _)) => return None,
            Some((namespace, name)) => (Some(namespace), name),
            None => (None, label),
        };
        Some((namespace, Shard::parse(name)?))
    }

    /// The name, with the namespace in front for a tenant: `acme:webhook`.
    pub fn label(self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{namespace}:{self}"),
            None => self.name().to_owned(),
        }
    }

    /// Whether `hint` names this shard of this namespace, with or without the namespace.
    pub fn is_meant_by(self, hint: &str, namespace: Option<&str>) -> bool {
        Shard::parse_label(hint)
            .is_some_and(|(named, shard)| shard == self && (named.is_none() || named == namespace))
    }

    /// The name without a namespace.
    pub fn name(self) -> &'static str {
        match self {
            Shard::Collection => "collection",
            Shard::Rpc => "rpc",
            Shard::Do => "do",
            Shard::Ws => "ws",
            Shard::Webhook => "webhook",
            Shard::Default => "default",
        }
    }

    fn of_segment(first: Option<&str>) -> Shard {
        first.and_then(Shard::parse).unwrap_or(Shard::Default)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e11_a_hint_names_a_shard_with_or_without_the_namespace() {
        let check = |hint, namespace, expected| {
            assert_eq!(Shard::Webhook.is_meant_by(hint, namespace), expected, "{hint}");
        };
        check("webhook", None, true);
        check("webhook", Some("acme"), true);
        check("acme:webhook", Some("acme"), true);
        check("acme:webhook", None, false);
        check("other:webhook", Some("acme"), false);
        check("acme:rpc", Some("acme"), false);
        check(":webhook", None, false);
        check("acme:x:webhook", Some("acme"), false);
        check("Webhook", None, false);
        check("", None, false);
    }

    #[test]
    fn e11_labels_read_back() {
        for shard in Shard::ALL {
            assert_eq!(Shard::parse_label(&shard.label(None)), Some((None, shard)));
            assert_eq!(Shard::parse_label(&shard.label(Some("a"))), Some((Some("a"), shard)));
        }
        assert_eq!(Shard::Webhook.label(Some("acme")), "acme:webhook");
    }
}
