//! Who asks, as rules see it.

use serde_json::{Map, Value as Json, json};

use crate::condition::Value;
use crate::key::{Key, Permission, Role};

/// Whoever makes a request.
#[derive(Debug, Clone)]
pub struct RuleAuth {
    /// Admins pass whatever the rules say, and so do tokens that say so.
    pub(super) is_admin: bool,
    fields: Map<String, Json>,
}

impl RuleAuth {
    /// The holder of a key: by the name that the key has for it, or by the key's own.
    pub fn of(key: &Key) -> RuleAuth {
        let access = &key.access;
        let user_id = match &access.entity_uri {
            Some(uri) => uri.to_string(),
            None => format!("key:{}", key.id),
        };
        let roles: Vec<&str> = access.roles.iter().map(|role| role.as_str()).collect();
        let all = Permission::ALL.into_iter().collect();
        let permissions = if access.permissions.is_empty() { &all } else { &access.permissions };
        let permissions: Vec<&str> = permissions.iter().map(|it| it.as_str()).collect();
        let scopes: Vec<&str> = access.scopes.iter().map(|scope| &**scope).collect();
        let fields = [
            ("userId", json!(user_id)),
            ("username", json!(access.entity_uri.as_deref())),
            ("roles", json!(roles)),
            ("claims", json!({"permissions": permissions, "scopes": scopes})),
        ];
        RuleAuth {
            is_admin: access.roles.contains(&Role::Admin),
            fields: fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    /// Whoever asks a server that asks nobody for a key.
    pub fn local() -> RuleAuth {
        RuleAuth { is_admin: true, fields: Map::new() }
    }

    /// The holder of a token, who is nobody's key.
    pub fn of_token(user_id: &str, roles: &[&str], claims: Map<String, Json>) -> RuleAuth {
        let fields = [
            ("userId", json!(user_id)),
            ("username", Json::Null),
            ("roles", json!(roles)),
            ("claims", Json::Object(claims)),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        RuleAuth { is_admin: false, fields }
    }

    /// The same, without rules being asked: where whoever gave out the token has decided so.
    #[must_use]
    pub fn without_rules(self) -> RuleAuth {
        RuleAuth { is_admin: true, ..self }
    }

    /// Whether rules are not asked.
    pub fn is_admin(&self) -> bool {
        self.is_admin
    }

    pub(super) fn as_value(&self) -> Value<'_> {
        Value::Map(&self.fields)
    }
}
