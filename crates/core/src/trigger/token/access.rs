//! What a valid token lets its holder do: tenant, scope and paths, in this order.

use serde_json::{Map, Value, json};

use super::{SYSTEM_ROLE, SYSTEM_SUBJECT, Scope, TokenClaims};
use crate::document::origin::Origin;
use crate::document::rules::RuleAuth;
use crate::tenant::Tenant;

/// The rights of a token's holder.
#[derive(Debug, Clone)]
pub struct TokenAccess(TokenClaims);

/// Why somebody with a valid token may not do this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessDenied {
    #[error(
        "the token is for the tenant `{0}`; it says which tenant is meant, and nothing else does"
    )]
    OtherTenant(Tenant),
    #[error("the token has no role `{SYSTEM_ROLE}`")]
    NoSystemRole,
    #[error("the token has not the scope `{}`", .0.as_str())]
    Scope(Scope),
    #[error("`{0}` is below none of the token's allowed paths")]
    Path(String),
}

impl TokenAccess {
    pub fn new(claims: TokenClaims) -> TokenAccess {
        TokenAccess(claims)
    }

    /// Whether it is good for this tenant, if one is named, and for this scope.
    pub fn check_scope(&self, named: Option<&Tenant>, scope: Scope) -> Result<(), AccessDenied> {
        if named.is_some_and(|named| named != self.tenant()) {
            return Err(AccessDenied::OtherTenant(self.tenant().clone()));
        }
        match &self.0 {
            TokenClaims::Trigger(claims) if claims.scopes.contains(scope) => Ok(()),
            TokenClaims::Trigger(_) => Err(AccessDenied::Scope(scope)),
            TokenClaims::System(claims) => {
                let is_system = claims.roles.iter().any(|role| &**role == SYSTEM_ROLE);
                is_system.then_some(()).ok_or(AccessDenied::NoSystemRole)
            }
        }
    }

    /// Whether a document or a collection is among those that it is for. The path has no slash at
    /// either end.
    pub fn check_path(&self, path: &str) -> Result<(), AccessDenied> {
        match &self.0 {
            TokenClaims::System(_) => Ok(()),
            TokenClaims::Trigger(claims) if claims.allow_paths.iter().any(|it| it.admits(path)) => {
                Ok(())
            }
            TokenClaims::Trigger(_) => Err(AccessDenied::Path(path.to_owned())),
        }
    }

    pub fn tenant(&self) -> &Tenant {
        self.0.tenant()
    }

    /// The id of the trigger; for an in-house worker its subject.
    pub fn holder(&self) -> &str {
        match &self.0 {
            TokenClaims::Trigger(claims) => &claims.trigger,
            TokenClaims::System(_) => SYSTEM_SUBJECT,
        }
    }

    pub fn is_system(&self) -> bool {
        matches!(self.0, TokenClaims::System(_))
    }

    /// By what its idempotency keys are told from those of others, API keys among them.
    pub fn idempotency_scope(&self) -> String {
        match &self.0 {
            TokenClaims::Trigger(claims) => format!("trigger:{}", claims.trigger),
            TokenClaims::System(_) => SYSTEM_SUBJECT.to_owned(),
        }
    }

    /// Whose doing its writes are.
    pub fn origin(&self) -> Origin {
        match &self.0 {
            TokenClaims::Trigger(claims) => claims.origin.clone(),
            TokenClaims::System(_) => Origin::CLIENT,
        }
    }

    pub fn max_ops(&self) -> Option<u64> {
        match &self.0 {
            TokenClaims::Trigger(claims) => claims.max_ops,
            TokenClaims::System(_) => None,
        }
    }

    pub fn max_payload_kb(&self) -> Option<u64> {
        match &self.0 {
            TokenClaims::Trigger(claims) => claims.max_payload_kb,
            TokenClaims::System(_) => None,
        }
    }

    pub fn bypasses_rules(&self) -> bool {
        match &self.0 {
            TokenClaims::Trigger(claims) => claims.bypass_rules,
            TokenClaims::System(_) => false,
        }
    }

    pub fn delivery(&self) -> Option<&str> {
        match &self.0 {
            TokenClaims::Trigger(claims) => claims.delivery.as_deref(),
            TokenClaims::System(_) => None,
        }
    }

    /// Its holder, as rules see it: `trigger:<id>` with the role `trigger`.
    pub fn rule_auth(&self) -> RuleAuth {
        match &self.0 {
            TokenClaims::Trigger(claims) => {
                let paths: Vec<&str> = claims.allow_paths.iter().map(|it| it.as_str()).collect();
                let scopes: Vec<&str> = claims.scopes.names().collect();
                let chain: Vec<&str> = claims.origin.chain().iter().map(|it| &**it).collect();
                let mut shown = Map::new();
                shown.insert("sub".into(), json!(&*claims.trigger));
                shown.insert("tenant".into(), json!(claims.tenant.as_str()));
                shown.insert("scopes".into(), json!(scopes));
                shown.insert("allow_paths".into(), json!(paths));
                shown.insert("origin".into(), json!(chain));
                let name = format!("trigger:{}", claims.trigger);
                let auth = RuleAuth::of_token(&name, &["trigger"], shown);
                if claims.bypass_rules { auth.without_rules() } else { auth }
            }
            TokenClaims::System(claims) => {
                let roles: Vec<&str> = claims.roles.iter().map(|role| &**role).collect();
                let mut shown = Map::new();
                shown.insert("sub".into(), Value::from(SYSTEM_SUBJECT));
                shown.insert("tenant".into(), json!(claims.tenant.as_str()));
                RuleAuth::of_token(SYSTEM_SUBJECT, &roles, shown)
            }
        }
    }
}
