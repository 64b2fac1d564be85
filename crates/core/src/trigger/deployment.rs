//! Which version of a trigger is in force, and for which documents.
//!
//! ```text
//!              enable                      breach of the objective
//!   disabled ───────────▶ enabled ──────────────────────────────▶ rolled_back
//!      ▲  │ dry-run          │  ▲                                     │
//!      │  ▼                  │  └────────────── enable ───────────────┤
//!      │ dry_run ── enable ──┘                                        │
//!      └────────────────────────── disable ───────────────────────────┘
//! ```
//!
//! A version with a share of less than 100 % leaves the other documents to the *stable* version: the
//! last one that was for all of them. A rollback goes back to that one, or to nothing.

use super::rollout::Rollout;
use crate::document::path::DocumentPath;
use crate::tenant::Tenant;

/// What a trigger does with changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing: no new change matches; what was matched waits.
    Disabled,
    /// What matches is delivered.
    Enabled,
    /// What matches is counted, and not delivered.
    DryRun,
    /// Its objective was missed.
    RolledBack {
        /// Whether the version before is in force; there may have been none.
        is_active: bool,
    },
}

/// The versions of a trigger that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deployment {
    pub state: State,
    /// The newest.
    pub version: u64,
    /// The last one before it that was for all documents, while it sent; `None` if there was none.
    pub stable: Option<u64>,
}

impl State {
    /// The word that the world knows it by; it never changes.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Enabled => "enabled",
            State::DryRun => "dry_run",
            State::RolledBack { .. } => "rolled_back",
        }
    }

    /// Whether new changes become deliveries.
    pub fn is_sending(self) -> bool {
        match self {
            State::Enabled | State::RolledBack { is_active: true } => true,
            State::Disabled | State::DryRun | State::RolledBack { is_active: false } => false,
        }
    }

    /// The state of the version that somebody has take over: what was rolled back was the one before.
    #[must_use]
    pub fn of_next_version(self) -> State {
        match self {
            State::RolledBack { is_active: true } => State::Enabled,
            State::Disabled
            | State::Enabled
            | State::DryRun
            | State::RolledBack { is_active: false } => self,
        }
    }

    /// Whether new changes are held against its condition, to be delivered or to be counted.
    pub fn is_evaluating(self) -> bool {
        self.is_sending() || self == State::DryRun
    }
}

impl Deployment {
    /// A trigger that was just made: disabled until it is enabled.
    pub fn first() -> Deployment {
        Deployment { state: State::Disabled, version: 1, stable: None }
    }

    /// The version that a change of this document is held against. `rollout` is that of the newest.
    pub fn version_for(
        &self,
        rollout: &Rollout,
        tenant: &Tenant,
        path: &DocumentPath,
    ) -> Option<u64> {
        if rollout.covers(tenant, path) { Some(self.version) } else { self.stable }
    }

    /// A new version takes over. `rollout` is that of the version before.
    #[must_use]
    pub fn with_next_version(self, rollout: &Rollout) -> Deployment {
        let was_for_all = self.state.is_sending() && rollout.is_full();
        let stable = if was_for_all { Some(self.version) } else { self.stable };
        Deployment { version: self.version + 1, stable, state: self.state.of_next_version() }
    }

    /// The objective was missed. A version that is the stable one again takes over, if there is
    /// one; otherwise nothing matches any more.
    #[must_use]
    pub fn rolled_back(self) -> Deployment {
        match self.stable {
            Some(_) => Deployment {
                state: State::RolledBack { is_active: true },
                version: self.version + 1,
                stable: None,
            },
            None => Deployment { state: State::RolledBack { is_active: false }, ..self },
        }
    }

    /// Another state, by an operator's wish.
    #[must_use]
    pub fn with_state(self, state: State) -> Deployment {
        Deployment { state, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(percent: u8) -> Rollout {
        Rollout { percent, slo: None }
    }

    fn versions(deployment: &Deployment, percent: u8) -> Vec<Option<u64>> {
        let tenant = Tenant::parse("acme").unwrap();
        let path = |number| DocumentPath::parse(&format!("orders/o{number}")).unwrap();
        let mut found: Vec<Option<u64>> = (0..200)
            .map(|number| deployment.version_for(&rollout(percent), &tenant, &path(number)))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    #[test]
    fn rol_2_the_other_documents_stay_with_the_stable_version() {
        let first = Deployment::first().with_state(State::Enabled);
        assert_eq!(versions(&first, 100), [Some(1)]);
        assert_eq!(versions(&first, 10), [None, Some(1)], "there was none before");
        let second = first.with_next_version(&rollout(100));
        assert_eq!(versions(&second, 10), [Some(1), Some(2)]);
        let third = second.with_next_version(&rollout(10));
        assert_eq!(versions(&third, 50), [Some(1), Some(3)], "2 never was for all");
        let fourth = third.with_next_version(&rollout(50)).with_next_version(&rollout(100));
        assert_eq!((fourth.version, fourth.stable), (5, Some(4)));
    }

    #[test]
    fn rol_3_a_breach_goes_back_to_the_stable_version_or_to_nothing() {
        let first = Deployment::first().with_state(State::Enabled);
        let lone = first.rolled_back();
        assert_eq!((lone.version, lone.state.is_sending()), (1, false));
        assert_eq!(lone.state.as_str(), "rolled_back");
        let back = first.with_next_version(&rollout(100)).rolled_back();
        assert_eq!((back.version, back.state.is_sending()), (3, true));
        let enabled = back.with_state(State::Enabled);
        assert_eq!(enabled.state.as_str(), "enabled");
        assert_eq!(back.with_next_version(&rollout(100)).state, State::Enabled);
        assert_eq!(lone.with_next_version(&rollout(100)).state, lone.state, "it sends nothing");
    }

    #[test]
    fn rol_4_what_was_never_sent_by_is_no_version_to_go_back_to() {
        let never = Deployment::first().with_next_version(&rollout(100));
        assert_eq!((never.version, never.stable), (2, None));
        let dry = Deployment::first().with_state(State::DryRun);
        assert!(dry.state.is_evaluating() && !dry.state.is_sending());
        assert_eq!(dry.with_next_version(&rollout(100)).stable, None);
    }
}
