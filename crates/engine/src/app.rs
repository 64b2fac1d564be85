//! What the domains of this engine have in common: the words that the kernel asks for, and where
//! each of them keeps its memory.
//!
//! A domain registers what it keeps and finds it again by its type, so that nothing here, and no
//! domain, has to know the others.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, HookId};
use reveille_core::delivery::policy::Poison;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::subscription::Timings;
use reveille_kernel::domains::{Domains, Index, Scratch};
use reveille_kernel::error::Damaged;
use reveille_kernel::outbox::Outbox;
use reveille_schema::{keys, record};

use crate::effect::{Attempt, Effect};
use crate::limits::{FAN_OUT, MATCH_STEPS};
use crate::quota::Quotas;

/// One partition, for its threads and its callers.
pub type Shared = reveille_kernel::shared::Shared<App>;
/// The place where a partition's part of the state is decided.
pub type Partition = reveille_kernel::partition::Partition<App>;
/// What one decision reads and writes.
pub type Txn<'a> = reveille_kernel::txn::Txn<'a, App>;

/// What decisions depend on beside the state.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long things may take.
    pub timings: Timings,
    /// How many are told at once; see [`FAN_OUT`].
    pub fan_out: usize,
    /// What finding out whom something is for may take; see [`MATCH_STEPS`].
    pub match_steps: usize,
    /// How much each tenant may have.
    pub quotas: Quotas,
    pub documents: DocumentSettings,
    /// When a trigger's delivery is given up because nothing will change.
    pub poison: Option<Poison>,
    /// Where the hashes of what clients wrote begin: they cannot know it.
    pub hash_seed: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            timings: Timings::default(),
            fan_out: FAN_OUT,
            match_steps: MATCH_STEPS,
            quotas: Quotas::default(),
            documents: DocumentSettings::default(),
            poison: Some(Poison { attempts: 3, within_ms: 250 }),
            hash_seed: 0,
        }
    }
}

/// An index, by its type.
type TypedIndex = (TypeId, Box<dyn IndexPart>);
/// Makes an index of nothing.
type NewIndex = Box<dyn Fn(&Settings) -> TypedIndex + Send + Sync>;

/// The domains of one partition, with what they keep in memory beside the state.
pub struct App {
    pub settings: Settings,
    /// Where attempts wait: whoever knows their limits tells it.
    pub(crate) outbox: Arc<Outbox<Attempt>>,
    parts: Vec<(TypeId, Box<dyn Part>)>,
    indexes: Vec<NewIndex>,
    followed: [bool; 256],
}

/// What a domain keeps in memory for everybody: it follows what is durable.
pub trait Part: Any + Send + Sync {
    /// The keys that it follows: each from the first to before the second, of one tag.
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }

    /// A key has become durable with this value, or was removed.
    fn follow(&self, _key: &Bytes, _value: Option<&Bytes>) -> Result<(), Damaged> {
        Ok(())
    }

    /// Lets go of what nobody needs any more; called now and then.
    fn sweep(&self) {}
}

/// What a domain knows for its decisions without reading: a fold over what was decided.
pub trait IndexPart: Any + Send {
    /// The keys that it folds: each from the first to before the second, of one tag.
    fn ranges(&self) -> Vec<(Bytes, Bytes)>;

    /// A key has this value from now on, or was removed.
    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged>;
}

impl App {
    pub fn new(settings: Settings) -> App {
        let settings = Settings { fan_out: settings.fan_out.max(1), ..settings };
        App {
            settings,
            outbox: Arc::default(),
            parts: Vec::new(),
            indexes: Vec::new(),
            followed: [false; 256],
        }
    }

    /// Registers what a domain keeps for everybody.
    pub fn with<P: Part>(mut self, part: P) -> App {
        mark(&mut self.followed, &part.ranges());
        self.parts.push((TypeId::of::<P>(), Box::new(part)));
        self
    }

    /// Registers what a domain knows for its decisions.
    pub fn with_index<I: IndexPart + Default>(self) -> App {
        self.with_index_of(|_| I::default())
    }

    /// The same, for one that depends on the settings.
    pub fn with_index_of<I: IndexPart>(mut self, new: fn(&Settings) -> I) -> App {
        let new = move |settings: &Settings| -> TypedIndex {
            (TypeId::of::<I>(), Box::new(new(settings)))
        };
        self.indexes.push(Box::new(new));
        self
    }

    /// What was registered of this type, while everything is still being registered.
    pub(crate) fn part_mut<P: Part>(&mut self) -> &mut P {
        let found = self.parts.iter_mut().find(|(id, _)| *id == TypeId::of::<P>());
        let found = found.and_then(|(_, part)| (&mut **part as &mut dyn Any).downcast_mut());
        found.expect("every part that is asked for was registered")
    }

    /// What was registered of this type.
    pub fn part<P: Part>(&self) -> &P {
        let found = self.parts.iter().find(|(id, _)| *id == TypeId::of::<P>());
        let found = found.and_then(|(_, part)| (&**part as &dyn Any).downcast_ref());
        found.expect("every part that is asked for was registered")
    }
}

fn mark(tags: &mut [bool; 256], ranges: &[(Bytes, Bytes)]) {
    let first = ranges.iter().filter_map(|(from, _)| from.first());
    for tag in first {
        if let Some(marked) = tags.get_mut(usize::from(*tag)) {
            *marked = true;
        }
    }
}

fn is_marked(tags: &[bool; 256], tag: u8) -> bool {
    tags.get(usize::from(tag)).copied().unwrap_or(false)
}

impl Domains for App {
    type Index = Indexes;
    type Effect = Effect;
    type Scratch = DecisionScratch;
    type Attempt = Attempt;

    fn new_index(&self) -> Indexes {
        let parts: Vec<_> = self.indexes.iter().map(|new| new(&self.settings)).collect();
        let mut followed = [false; 256];
        for (_, part) in &parts {
            mark(&mut followed, &part.ranges());
        }
        Indexes { parts, followed }
    }

    fn outbox(&self) -> Arc<Outbox<Attempt>> {
        self.outbox.clone()
    }

    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        self.parts.iter().flat_map(|(_, part)| part.ranges()).collect()
    }

    fn follows(&self, tag: u8) -> bool {
        is_marked(&self.followed, tag)
    }

    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        for (_, part) in &self.parts {
            if part.ranges().iter().any(|(from, to)| from <= key && key < to) {
                part.follow(key, value)?;
            }
        }
        Ok(())
    }

    fn sweep(&self) {
        for (_, part) in &self.parts {
            part.sweep();
        }
    }
}

/// What decisions know without reading, domain by domain.
pub struct Indexes {
    parts: Vec<TypedIndex>,
    followed: [bool; 256],
}

impl Indexes {
    /// What a domain knows.
    pub fn of<I: IndexPart>(&self) -> &I {
        let found = self.parts.iter().find(|(id, _)| *id == TypeId::of::<I>());
        let found = found.and_then(|(_, part)| (&**part as &dyn Any).downcast_ref());
        found.expect("every index that is asked for was registered")
    }
}

impl Index for Indexes {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        self.parts.iter().flat_map(|(_, part)| part.ranges()).collect()
    }

    fn follows(&self, tag: u8) -> bool {
        is_marked(&self.followed, tag)
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        for (_, part) in &mut self.parts {
            if part.ranges().iter().any(|(from, to)| from <= key && key < to) {
                part.follow(key, value)?;
            }
        }
        Ok(())
    }
}

/// What one decision gathers.
#[derive(Debug, Default)]
pub struct DecisionScratch {
    /// What deliveries have come to, as it leaves them: it may count a hundred times.
    pub counts: BTreeMap<HookId, DeliveryCounts>,
    /// What finding out whom something is for has taken.
    pub match_steps: usize,
}

impl Scratch for DecisionScratch {
    fn writes(self) -> Vec<(Bytes, Bytes)> {
        let write = |(hook, counts): (HookId, DeliveryCounts)| {
            (keys::counts(hook), record::encode_delivery_counts(&counts))
        };
        self.counts.into_iter().map(write).collect()
    }
}
