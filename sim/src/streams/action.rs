//! What can be asked about streams, and what it may come to.

use reveille_core::stream::append::{Append, AppendReceipt};
use reveille_core::stream::create::Create;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::{Millis, StreamPath};

use crate::base::engine::Timer;

#[derive(Debug, Clone)]
pub(super) enum Action {
    Create {
        path: StreamPath,
        request: Create,
    },
    Append {
        path: StreamPath,
        request: Append,
    },
    Delete {
        path: StreamPath,
    },
    /// A read is written down.
    Touch {
        path: StreamPath,
        id: StreamId,
        at: Millis,
    },
    Timer(Timer),
    Probe,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StreamAnswer {
    Created { head: Box<Head>, new: bool },
    Appended(AppendReceipt),
    Done,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StreamError {
    Rejected(Rejected),
    Unavailable,
    /// Nothing that is ever expected here.
    Other(String),
}

pub(super) type StreamResult = Result<StreamAnswer, StreamError>;

impl Action {
    /// The stream that a client's action is about.
    pub(super) fn target(&self) -> Option<&str> {
        match self {
            Action::Append { path, .. } | Action::Create { path, .. } => Some(path.as_str()),
            _ => None,
        }
    }

    /// Whether a read-only server refuses it.
    pub(super) fn is_write(&self) -> bool {
        matches!(self, Action::Create { .. } | Action::Append { .. } | Action::Probe)
    }

    /// In a line, of which the body is so long.
    pub(super) fn describe(&self, len: usize) -> String {
        match self {
            Action::Create { path, request } => {
                let fork = request.fork.as_ref().map(|fork| {
                    let at = fork.at.map(|at| at.position());
                    format!(" fork of {} at {at:?}+{}", fork.source, fork.sub_offset)
                });
                let fork = fork.unwrap_or_default();
                let (expiry, closed) = (&request.expiry, request.closed);
                format!("create {path}{fork} {expiry:?} closed={closed} {len}B")
            }
            Action::Append { path, request } => {
                let by = request
                    .producer
                    .as_ref()
                    .map(|tag| format!(" by {}/{}/{}", tag.id, tag.epoch, tag.seq))
                    .unwrap_or_default();
                format!("append {path}{by} close={} {len}B", request.close)
            }
            Action::Delete { path } => format!("delete {path}"),
            Action::Touch { path, id, at } => format!("touch {path} {} at {}", id.0, at.0),
            Action::Timer(timer) => format!("{:?} with {} keys", timer.timer, timer.remains),
            Action::Probe => "probe".to_owned(),
        }
    }
}
