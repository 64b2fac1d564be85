//! Who asks: what a key makes of its holder, among facts.

use std::collections::BTreeSet;

use super::name::{EntityUri, Scope, ScopeId};
use crate::key::{Access, Permission, Right, Role};

/// Somebody who reads and writes facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Who they are: what their key says, or the key itself.
    pub entity: EntityUri,
    /// Whether they run the tenant: they make tokens, and say who belongs to a garden.
    pub is_admin: bool,
    pub reads: bool,
    pub writes: bool,
    /// The scopes that they read; `None`: every one.
    pub scopes: Option<BTreeSet<Scope>>,
}

impl Principal {
    /// The holder of a key. One that is no user and no admin has nothing to do with facts.
    pub fn of_key(id: &str, access: &Access) -> Principal {
        let named = access.entity_uri.as_deref().and_then(|uri| EntityUri::parse(uri).ok());
        let scopes = access.scopes.iter().filter_map(|name| Scope::parse(name).ok()).collect();
        Principal {
            entity: named.unwrap_or_else(|| holder_of(id)),
            is_admin: access.is(Role::Admin),
            reads: access.may(Right::Data(Permission::Read)),
            writes: access.may(Right::Data(Permission::Write)),
            scopes: (!access.reads_every_scope()).then_some(scopes),
        }
    }

    /// Whoever asks a server that wants no keys.
    pub fn local() -> Principal {
        Principal {
            entity: holder_of("local"),
            is_admin: true,
            reads: true,
            writes: true,
            scopes: None,
        }
    }

    /// Whether they read the facts of a scope that are in no garden.
    pub fn may_read(&self, scope: Scope) -> bool {
        self.reads && self.scopes.as_ref().is_none_or(|scopes| scopes.contains(&scope))
    }

    /// Whether they may be told of a scope; of a garden, its members are.
    pub fn may_follow(&self, scope: &ScopeId) -> bool {
        match scope {
            ScopeId::Global => self.reads && self.scopes.is_none(),
            ScopeId::One(scope) => self.may_read(*scope),
            ScopeId::Garden(_) => self.reads,
        }
    }
}

/// Who holds a key that names nobody.
fn holder_of(id: &str) -> EntityUri {
    EntityUri::parse(&format!("key:{id}")).expect("an id of a key is short and printable")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tenant::Tenant;

    fn access(role: Role, scopes: &[&str], permissions: &[Permission]) -> Access {
        Access {
            roles: BTreeSet::from([role]),
            permissions: permissions.iter().copied().collect(),
            scopes: scopes.iter().map(|scope| Arc::from(*scope)).collect(),
            ..Access::admin(Tenant::parse("acme").ok())
        }
    }

    #[test]
    fn a_key_says_who_reads_which_scope() {
        let read = [Permission::Read];
        for (access, entity, follows_all, company, public) in [
            (access(Role::User, &["company"], &[]), "key:k1", false, true, false),
            (access(Role::User, &["*"], &[]), "key:k1", true, true, true),
            (access(Role::User, &["global"], &[]), "key:k1", true, true, true),
            (access(Role::User, &[], &[]), "key:k1", false, false, false),
            (access(Role::User, &["company"], &[Permission::Write]), "key:k1", false, false, false),
            (access(Role::Admin, &[], &read), "key:k1", true, true, true),
            (access(Role::Operator, &["*"], &[]), "key:k1", false, false, false),
        ] {
            let principal = Principal::of_key("k1", &access);
            assert_eq!(principal.entity.as_str(), entity);
            assert_eq!(principal.may_follow(&ScopeId::Global), follows_all, "{access:?}");
            assert_eq!(principal.may_read(Scope::Company), company, "{access:?}");
            assert_eq!(principal.may_read(Scope::Public), public, "{access:?}");
        }
        assert!(!Principal::of_key("k", &access(Role::Admin, &[], &read)).writes);
        assert!(Principal::local().writes && Principal::local().is_admin);
    }

    #[test]
    fn whoever_a_key_names_is_who_they_are() {
        let named =
            Access { entity_uri: Some("User:Alice".into()), ..access(Role::User, &[], &[]) };
        assert_eq!(Principal::of_key("k1", &named).entity.as_str(), "user:alice");
    }
}
