//! What a subscription or a token is for: a scope, or an entity.

use std::fmt;

use super::name::{EntityUri, ScopeId};

/// What a subscription is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    Scope(ScopeId),
    Entity(EntityUri),
}

/// The text names nothing to subscribe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "`target` is `scope:` and one of \"global\", \"local\", \"team\", \"company\", \"public\" and \
     \"garden:SLUG\", or `entity:` and the URI of an entity"
)]
pub struct TargetError;

impl Target {
    /// Reads `scope:…` or `entity:…`.
    pub fn parse(text: &str) -> Result<Target, TargetError> {
        if let Some(scope) = text.strip_prefix("scope:") {
            return ScopeId::parse(scope).map(Target::Scope).map_err(|_| TargetError);
        }
        let entity = text.strip_prefix("entity:").ok_or(TargetError)?;
        EntityUri::parse(entity).map(Target::Entity).map_err(|_| TargetError)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Scope(scope) => write!(f, "scope:{scope}"),
            Target::Entity(entity) => write!(f, "entity:{entity}"),
        }
    }
}

/// What a token is good for. A grant on one object is never one on another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// Everything in the tenant.
    Any,
    One(Target),
}

/// The text names no object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`object` is \"*\", a target such as \"scope:company\", or a scope or an entity alone")]
pub struct ObjectError;

impl Object {
    /// Reads `*`, a target, or a scope or an entity without the word before it.
    pub fn parse(text: &str) -> Result<Object, ObjectError> {
        if text == "*" {
            return Ok(Object::Any);
        }
        if text.starts_with("scope:") || text.starts_with("entity:") {
            return Target::parse(text).map(Object::One).map_err(|_| ObjectError);
        }
        if let Ok(scope) = ScopeId::parse(text) {
            return Ok(Object::One(Target::Scope(scope)));
        }
        let entity = EntityUri::parse(text).map_err(|_| ObjectError)?;
        Ok(Object::One(Target::Entity(entity)))
    }

    /// Whether a grant on it is one on the target.
    pub fn covers(&self, target: &Target) -> bool {
        match self {
            Object::Any => true,
            Object::One(one) => one == target,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Any => f.write_str("*"),
            Object::One(target) => target.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s_4_targets_are_scopes_and_entities() {
        for good in [
            "scope:global",
            "scope:company",
            "scope:garden:atlas",
            "entity:stigmem://co.example/user/alice",
            "entity:user:alice",
        ] {
            assert_eq!(Target::parse(good).unwrap().to_string(), good);
        }
        for bad in [
            "global",
            "stigmem://co/user/a",
            "scope:",
            "entity:",
            "Scope:global",
            "garden:atlas",
            "",
            "scope:nowhere",
        ] {
            assert_eq!(Target::parse(bad), Err(TargetError), "{bad}");
        }
        assert_eq!(
            Target::parse("entity:stigmem://Company.Example/User/Alice"),
            Target::parse("entity:stigmem://company.example/user/alice"),
        );
    }

    #[test]
    fn a_grant_covers_its_own_object_and_no_other() {
        for (object, target, covered) in [
            ("scope:company", "scope:company", true),
            ("company", "scope:company", true),
            ("garden:atlas", "scope:garden:atlas", true),
            ("stigmem://co/garden/atlas", "scope:garden:atlas", true),
            ("user:alice", "entity:user:alice", true),
            ("User:Alice", "entity:user:alice", true),
            ("*", "scope:global", true),
            ("*", "entity:x", true),
            ("scope:company", "scope:public", false),
            ("scope:global", "scope:company", false),
            ("scope:global", "entity:x", false),
            ("company", "entity:company", false),
            ("entity:company", "scope:company", false),
            ("entity:company", "entity:company", true),
        ] {
            let found = Object::parse(object).unwrap().covers(&Target::parse(target).unwrap());
            assert_eq!(found, covered, "{object} {target}");
        }
        for bad in ["", "scope:nowhere", "entity:", "a\nb"] {
            assert_eq!(Object::parse(bad), Err(ObjectError), "{bad}");
        }
        for text in ["*", "scope:company", "entity:user:alice"] {
            assert_eq!(Object::parse(text).unwrap().to_string(), text);
        }
    }
}
