//! Where agents are woken: each by a stream of its own, by the template that the operator gives.

use std::sync::Arc;

use crate::path::{PathError, StreamPath};

const AGENT: &str = "{wake_agent_id}";

/// The paths of the streams that agents follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WakeTemplate(Arc<str>);

/// The text is no template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WakeTemplateError {
    #[error("it names the agent once, as `{AGENT}`: write for example `/agents/{AGENT}`")]
    NoAgent,
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("streams that begin with `/_` are the server's own; choose another place")]
    Internal,
}

impl WakeTemplate {
    /// Reads a template such as `/agents/{wake_agent_id}`.
    pub fn parse(text: &str) -> Result<WakeTemplate, WakeTemplateError> {
        if text.matches(AGENT).count() != 1 || text.replace(AGENT, "").contains(['{', '}']) {
            return Err(WakeTemplateError::NoAgent);
        }
        let template = WakeTemplate(text.into());
        // The name of every agent is as long as this one.
        let path = template.path("00000000-0000-0000-0000-000000000000")?;
        if path.is_internal() { Err(WakeTemplateError::Internal) } else { Ok(template) }
    }

    /// The stream of an agent.
    pub fn path(&self, agent: &str) -> Result<StreamPath, PathError> {
        StreamPath::parse(&self.0.replace(AGENT, agent))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_one_place_for_the_agent() {
        let template = WakeTemplate::parse("/agents/{wake_agent_id}/inbox").unwrap();
        assert_eq!(template.path("a-b").unwrap().as_str(), "/agents/a-b/inbox");
        assert_eq!(template.as_str(), "/agents/{wake_agent_id}/inbox");
        for bad in [
            "",
            "/agents",
            "/agents/{agent}",
            "/{wake_agent_id}/{wake_agent_id}",
            "/{wake_agent_id}/{x}",
        ] {
            assert_eq!(WakeTemplate::parse(bad), Err(WakeTemplateError::NoAgent), "{bad}");
        }
        for bad in ["agents/{wake_agent_id}", "/a b/{wake_agent_id}", "/a?{wake_agent_id}"] {
            let found = WakeTemplate::parse(bad);
            assert!(matches!(found, Err(WakeTemplateError::Path(_))), "{bad}");
        }
        let own = WakeTemplate::parse("/_agents/{wake_agent_id}");
        assert_eq!(own, Err(WakeTemplateError::Internal));
    }
}
