//! Keys: what one looks like, what it allows, and who may make which.
//!
//! ```text
//! key      = "rv_" base64url(32 random bytes)     shown once, when it is made
//! kept     = SHA-256(key)                          nobody gets from it back to the key
//! ```
//!
//! | role | may |
//! |---|---|
//! | admin | everything in its tenant; without a tenant, in every tenant |
//! | operator | look at what is there and run it, in its tenant |
//! | user | streams, subscriptions and what else holds data, in its tenant |

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::{constant_time, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::limits::{
    DESCRIPTION_BYTES_MAX, ENTITY_URI_BYTES_MAX, KEY_BYTES_MAX, SCOPE_BYTES_MAX, SCOPES_MAX,
};
use crate::tenant::Tenant;
use crate::time::Millis;

/// What every key begins with, so that one that was left somewhere is recognised.
const PREFIX: &str = "rv_";
/// By which the key is spoken of that the server was started with: it is stored nowhere.
pub const BOOTSTRAP_KEY_ID: &str = "admin-key";
/// What stands among a key's scopes for all of them.
const EVERY_SCOPE: [&str; 2] = ["*", "global"];
/// The shortest key that an operator may choose.
pub const CHOSEN_KEY_CHARS_MIN: usize = 16;

/// The text of a key that lives in this partition, made of these bytes.
pub fn text(partition: u8, random: &[u8; 32]) -> String {
    let mut bytes = [0; 33];
    let (first, rest) = bytes.split_at_mut(1);
    first.fill(partition);
    rest.copy_from_slice(random);
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// The partition that a key lives in, if the text is one of ours.
pub fn partition(text: &str) -> Option<u8> {
    let bytes = URL_SAFE_NO_PAD.decode(text.strip_prefix(PREFIX)?).ok()?;
    bytes.first().copied().filter(|_| bytes.len() == 33)
}

/// What is kept of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 32]);

impl KeyHash {
    /// The hash of a key; nothing that is too long to be one is looked at.
    pub fn of(key: &str) -> Option<KeyHash> {
        if key.len() > KEY_BYTES_MAX {
            return None;
        }
        let hash = digest::digest(&digest::SHA256, key.as_bytes());
        hash.as_ref().try_into().ok().map(KeyHash)
    }

    /// Whether they are the same, in a time that does not tell how much of them is.
    pub fn is_same(&self, other: &KeyHash) -> bool {
        constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

/// Says that there is one, and nothing of it.
impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}

/// What somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// May do everything, and make keys.
    Admin,
    /// Runs the server for its tenant.
    Operator,
    /// Works with the data.
    User,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Admin, Role::Operator, Role::User];

    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::User => "user",
        }
    }

    /// The role of this name.
    pub fn parse(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// What may be done with data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Permission {
    /// Look at it.
    Read,
    /// Change it.
    Write,
}

impl Permission {
    /// Both of them.
    pub const ALL: [Permission; 2] = [Permission::Read, Permission::Write];

    pub fn as_str(self) -> &'static str {
        match self {
            Permission::Read => "read",
            Permission::Write => "write",
        }
    }

    /// The permission of this name.
    pub fn parse(name: &str) -> Option<Permission> {
        Permission::ALL.into_iter().find(|permission| permission.as_str() == name)
    }
}

/// What one must be allowed to ask something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right<'a> {
    /// To be anybody at all.
    Any,
    /// To read or write the tenant's data.
    Data(Permission),
    /// To have what may be read sent somewhere: that reads it, and writes a subscription.
    Subscribe,
    /// To look at subscriptions and what became of them, or to run those that there are.
    Subscriptions(Permission),
    /// To read the facts of a scope.
    Facts(&'a str),
    /// To look at the tenant from the outside, or to run it.
    Operate(Permission),
    /// To look at who may what in the tenant, or to change it.
    Manage(Permission),
    /// To change what all tenants share.
    ManageAll,
}

impl Right<'_> {
    /// What one must be to read the stream at a path, or to be told of streams like it: the
    /// server's own streams are not for everybody.
    pub fn to_read(path: &str) -> Right<'_> {
        let Some(own) = path.strip_prefix("/_") else {
            return Right::Data(Permission::Read);
        };
        match own.split_once('/') {
            Some(("events", _)) => Right::Data(Permission::Read),
            Some(("facts", scope)) => Right::Facts(scope),
            _ => Right::Operate(Permission::Read),
        }
    }
}

/// What a key allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Where; everywhere if absent.
    pub tenant: Option<Tenant>,
    /// What its holder is.
    pub roles: BTreeSet<Role>,
    /// Who its holder is, among facts.
    pub entity_uri: Option<Arc<str>>,
    /// What its holder may do with data; everything if empty.
    pub permissions: BTreeSet<Permission>,
    /// Scopes of facts that its holder may read.
    pub scopes: BTreeSet<Arc<str>>,
    /// For people.
    pub description: Option<Arc<str>>,
}

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// By which it is spoken of.
    pub id: Arc<str>,
    /// When it was made.
    pub created_at: Millis,
    /// What it allows.
    pub access: Access,
}

/// Why there is no such key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The tenant's name is taken for something else.
    #[error(
        "`{0}` is a reserved name that no tenant has; choose another (of the reserved names only \
         `default` can have keys: it is the tenant of a server that runs without them)"
    )]
    Reserved(Tenant),
    /// It would be nobody's.
    #[error("`roles` must name at least one of \"admin\", \"operator\" and \"user\"")]
    NoRole,
    /// It would be everywhere what one is only in a tenant.
    #[error("a key without a tenant is an admin's and has no other role; name a tenant")]
    NoTenant,
    /// Something is too long.
    #[error("`{field}` must be 1 to {max} bytes long, and printable")]
    Text { field: &'static str, max: usize },
    /// There are too many scopes.
    #[error("a key has at most {SCOPES_MAX} scopes")]
    Scopes,
}

impl Access {
    /// What an admin may, in a tenant or everywhere.
    pub fn admin(tenant: Option<Tenant>) -> Access {
        Access {
            tenant,
            roles: BTreeSet::from([Role::Admin]),
            entity_uri: None,
            permissions: BTreeSet::new(),
            scopes: BTreeSet::new(),
            description: None,
        }
    }

    /// Whether there can be such a key.
    pub fn check(&self) -> Result<(), AccessError> {
        if self.roles.is_empty() {
            return Err(AccessError::NoRole);
        }
        match &self.tenant {
            None if self.roles != BTreeSet::from([Role::Admin]) => {
                return Err(AccessError::NoTenant);
            }
            Some(tenant) if tenant.is_reserved() && *tenant != Tenant::default_tenant() => {
                return Err(AccessError::Reserved(tenant.clone()));
            }
            Some(_) | None => {}
        }
        check_text("entity_uri", self.entity_uri.as_ref(), ENTITY_URI_BYTES_MAX)?;
        check_text("description", self.description.as_ref(), DESCRIPTION_BYTES_MAX)?;
        if self.scopes.len() > SCOPES_MAX {
            return Err(AccessError::Scopes);
        }
        self.scopes.iter().try_for_each(|scope| check_text("scopes", Some(scope), SCOPE_BYTES_MAX))
    }

    /// Whether it has this role.
    pub fn is(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }

    /// Whether it is an admin's of all tenants.
    pub fn is_everywhere(&self) -> bool {
        self.tenant.is_none() && self.is(Role::Admin)
    }

    /// Whether it allows this.
    pub fn may(&self, right: Right<'_>) -> bool {
        let admin = self.is(Role::Admin);
        let (user, operator) = (admin || self.is(Role::User), admin || self.is(Role::Operator));
        match right {
            Right::Any => !self.roles.is_empty(),
            Right::Data(permission) => user && self.permits(permission),
            Right::Subscribe => {
                user && self.permits(Permission::Read) && self.permits(Permission::Write)
            }
            Right::Subscriptions(permission) => (user || operator) && self.permits(permission),
            Right::Facts(scope) => {
                let scoped = self.reads_every_scope() || self.scopes.contains(scope);
                (admin || self.is(Role::User) && scoped) && self.permits(Permission::Read)
            }
            Right::Operate(permission) => operator && self.permits(permission),
            Right::Manage(permission) => admin && self.permits(permission),
            Right::ManageAll => self.is_everywhere() && self.permits(Permission::Write),
        }
    }

    /// Whether every scope of facts may be read.
    pub fn reads_every_scope(&self) -> bool {
        self.is(Role::Admin) || self.names_every_scope()
    }

    fn names_every_scope(&self) -> bool {
        EVERY_SCOPE.iter().any(|all| self.scopes.contains(*all))
    }

    fn permits(&self, permission: Permission) -> bool {
        self.permissions.is_empty() || self.permissions.contains(&permission)
    }

    /// Whether everything that the other allows in its tenant is allowed by this one, too: then
    /// whoever has this key may give that one away. An admin is everything that there is to be; it
    /// may still lack a permission, and one that is for some scopes gives none but those away.
    pub fn covers(&self, other: &Access) -> bool {
        let permissions = Permission::ALL.into_iter();
        let mut wanted = permissions.filter(|permission| other.permits(*permission));
        let roles = self.is(Role::Admin) || other.roles.is_subset(&self.roles);
        let all = self.scopes.is_empty() || self.names_every_scope();
        let scopes = all || other.scopes.is_subset(&self.scopes);
        wanted.all(|permission| self.permits(permission)) && roles && scopes
    }

    /// Whether its holder may make, see and revoke keys like this one.
    pub fn manages(&self, other: &Access) -> bool {
        let mine = match (&self.tenant, &other.tenant) {
            (None, _) => true,
            (Some(mine), Some(theirs)) => mine == theirs,
            (Some(_), None) => false,
        };
        self.is(Role::Admin) && mine
    }
}

fn check_text(field: &'static str, text: Option<&Arc<str>>, max: usize) -> Result<(), AccessError> {
    let fits = |text: &Arc<str>| {
        !text.is_empty() && text.len() <= max && !text.chars().any(char::is_control)
    };
    if text.is_none_or(fits) { Ok(()) } else { Err(AccessError::Text { field, max }) }
}

#[cfg(test)]
mod tests;
