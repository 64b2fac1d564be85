//! What the token that travels in a trigger's payload allows (TET-2, TET-3).

use std::sync::Arc;

use super::glob::CollectionGlob;
use super::limits::ALLOW_PATH_BYTES_MAX;
use crate::document::path::DocumentPath;
use crate::tenant::Tenant;

/// What the token of a delivery allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGrant {
    pub scopes: Scopes,
    /// Prefixes of paths; none: the collection of the change.
    pub allow_paths: Vec<PathTemplate>,
    /// Operations of one call; `None`: as many as the server takes.
    pub max_ops: Option<u32>,
    /// KiB of one call; `None`: as many as the server takes.
    pub max_payload_kb: Option<u32>,
    /// Whether it is not asked of the tenant's rules. Only with `allow_paths`.
    pub bypass_rules: bool,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scopes {
    pub read: bool,
    pub write: bool,
}

/// A prefix of paths: `/rooms/{1}/messages/`, where `{1}` is what the first segment of the pattern
/// that is no name stood for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathTemplate(Arc<str>);

/// The text is no prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("must be at most {ALLOW_PATH_BYTES_MAX} bytes long")]
    TooLong,
    #[error("must be the beginning of paths, like `/rooms/{{1}}/messages/`")]
    Form,
    #[error(
        "has `{{{0}}}`, but there are `{{id}}`, `{{collection}}`, `{{tenant}}` and `{{1}}`, `{{2}}`, …"
    )]
    Unknown(String),
    #[error("has `{{{number}}}`, but `collection` has only {count} segments that are no names")]
    NoCapture { number: usize, count: usize },
}

/// A placeholder stands for nothing: no token is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a placeholder of `token.allowPaths` stands for nothing")]
pub struct Unresolved;

/// A segment of a template.
enum Part<'t> {
    Name(&'t str),
    Capture(usize),
    Id,
    Collection,
    Tenant,
}

impl Scopes {
    pub const ALL: Scopes = Scopes { read: true, write: true };
    pub const READ: &'static str = "trigger.read";
    pub const WRITE: &'static str = "trigger.write";

    /// As tokens and definitions write them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let names = [(self.read, Scopes::READ), (self.write, Scopes::WRITE)];
        names.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name)
    }

    /// Reads what [`Scopes::names`] says; the first name that is none is the error.
    pub fn parse_names<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Scopes, &'n str> {
        let mut scopes = Scopes { read: false, write: false };
        for name in names {
            match name {
                Scopes::READ => scopes.read = true,
                Scopes::WRITE => scopes.write = true,
                other => return Err(other),
            }
        }
        Ok(scopes)
    }
}

impl Default for TokenGrant {
    fn default() -> TokenGrant {
        TokenGrant {
            scopes: Scopes::ALL,
            allow_paths: Vec::new(),
            max_ops: None,
            max_payload_kb: None,
            bypass_rules: false,
        }
    }
}

impl TokenGrant {
    /// The prefixes for a change of this document: paths with a slash at either end, without any
    /// placeholder.
    pub fn resolve(
        &self,
        collection: &CollectionGlob,
        path: &DocumentPath,
        tenant: &Tenant,
    ) -> Result<Vec<String>, Unresolved> {
        if self.allow_paths.is_empty() {
            return Ok(vec![format!("/{}/", path.collection())]);
        }
        let captures = collection.captures(path);
        let prefixes = self.allow_paths.iter();
        prefixes.map(|prefix| prefix.resolve(&captures, path, tenant)).collect()
    }
}

impl PathTemplate {
    /// Reads a prefix. Slashes at its ends may be left out.
    pub fn parse(text: &str) -> Result<PathTemplate, TemplateError> {
        if text.len() > ALLOW_PATH_BYTES_MAX {
            return Err(TemplateError::TooLong);
        }
        for segment in segments(text) {
            part(segment)?;
        }
        Ok(PathTemplate(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Refuses a placeholder that never stands for anything.
    pub fn check(&self, captures: usize) -> Result<(), TemplateError> {
        let too_far = segments(&self.0).find_map(|segment| match part(segment) {
            Ok(Part::Capture(number)) if number > captures => Some(number),
            _ => None,
        });
        match too_far {
            Some(number) => Err(TemplateError::NoCapture { number, count: captures }),
            None => Ok(()),
        }
    }

    /// Whether it is the beginning of every path.
    pub fn is_everything(&self) -> bool {
        segments(&self.0).next().is_none()
    }

    fn resolve(
        &self,
        captures: &[&str],
        path: &DocumentPath,
        tenant: &Tenant,
    ) -> Result<String, Unresolved> {
        let mut resolved = "/".to_owned();
        for segment in segments(&self.0) {
            let text = match part(segment).map_err(|_| Unresolved)? {
                Part::Name(name) => name,
                Part::Capture(number) => {
                    number.checked_sub(1).and_then(|at| captures.get(at)).ok_or(Unresolved)?
                }
                Part::Id => path.id().as_str(),
                Part::Collection => path.collection().as_str(),
                Part::Tenant => tenant.as_str(),
            };
            resolved.push_str(text);
            resolved.push('/');
        }
        Ok(resolved)
    }
}

/// What is between the slashes; those at the ends may be left out.
fn segments(text: &str) -> impl Iterator<Item = &str> {
    let text = text.strip_prefix('/').unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    text.split('/').filter(move |_| !text.is_empty())
}

fn part(segment: &str) -> Result<Part<'_>, TemplateError> {
    let inside = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let Some(inside) = inside else {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let is_name = !segment.is_empty() && segment.bytes().all(is_allowed);
        return match segment {
            "." | ".." => Err(TemplateError::Form),
            name if is_name => Ok(Part::Name(name)),
            _ => Err(TemplateError::Form),
        };
    };
    match inside {
        "id" => Ok(Part::Id),
        "collection" => Ok(Part::Collection),
        "tenant" => Ok(Part::Tenant),
        _ => match inside.parse() {
            Ok(number @ 1..) if !inside.starts_with(['+', '0']) => Ok(Part::Capture(number)),
            _ => Err(TemplateError::Unknown(inside.escape_debug().take(32).collect())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(template: &str, glob: &str, path: &str) -> Result<Vec<String>, String> {
        let glob = CollectionGlob::parse(glob).unwrap();
        let template = PathTemplate::parse(template).map_err(|error| error.to_string())?;
        template.check(glob.capture_count()).map_err(|error| error.to_string())?;
        let grant = TokenGrant { allow_paths: vec![template], ..TokenGrant::default() };
        let tenant = Tenant::parse("acme").unwrap();
        let path = DocumentPath::parse(path).unwrap();
        grant.resolve(&glob, &path, &tenant).map_err(|error| error.to_string())
    }

    #[test]
    fn tet_3_placeholders_become_what_they_stand_for() {
        let check = |template: &str, expected: &str| {
            let found = resolve(template, "rooms/*/messages", "rooms/r1/messages/m9");
            assert_eq!(found, Ok(vec![expected.to_owned()]), "{template}");
        };
        check("/rooms/{1}/messages/", "/rooms/r1/messages/");
        check("rooms/{1}", "/rooms/r1/");
        check("/{collection}/{id}", "/rooms/r1/messages/m9/");
        check("/tenants/{tenant}/", "/tenants/acme/");
        check("/", "/");
        check("", "/");
        let of_documents = resolve("/audit/{1}-/", "users/*", "users/u1");
        assert!(of_documents.is_err());
        assert_eq!(resolve("/audit/{1}/", "users/*", "users/u1"), Ok(vec!["/audit/u1/".into()]));
    }

    #[test]
    fn without_prefixes_it_is_the_collection_of_the_change() {
        let glob = CollectionGlob::parse("rooms/*/messages").unwrap();
        let path = DocumentPath::parse("rooms/r1/messages/m").unwrap();
        let tenant = Tenant::parse("acme").unwrap();
        let found = TokenGrant::default().resolve(&glob, &path, &tenant);
        assert_eq!(found, Ok(vec!["/rooms/r1/messages/".to_owned()]));
    }

    #[test]
    fn tet_3_what_would_stay_a_placeholder_is_refused() {
        let refused = |template: &str, said: &str| {
            let found = resolve(template, "rooms/*/messages", "rooms/r1/messages/m9").unwrap_err();
            assert!(found.contains(said), "{template}: {found}");
        };
        refused("/rooms/{2}/", "only 1 segments");
        refused("/rooms/{name}/", "has `{name}`");
        refused("/rooms/{0}/", "has `{0}`");
        refused("/rooms/{01}/", "has `{01}`");
        refused("/rooms/{+1}/", "has `{+1}`");
        refused("/rooms/*/", "beginning of paths");
        refused("/rooms//x/", "beginning of paths");
        refused("/rooms/../x/", "beginning of paths");
        refused("/rooms/a b/", "beginning of paths");
        refused(&"a".repeat(257), "at most 256");
    }
}
