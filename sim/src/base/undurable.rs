//! What a world has seen decided and has not seen durable, by batch.

/// Changes of a model, in the order in which they were decided.
pub(crate) struct Undurable<C>(Vec<(u64, C)>);

impl<C> Default for Undurable<C> {
    fn default() -> Undurable<C> {
        Undurable(Vec::new())
    }
}

impl<C> Undurable<C> {
    /// Something was decided as a part of a batch.
    pub(crate) fn push(&mut self, batch: u64, change: C) {
        self.0.push((batch, change));
    }

    /// A batch has become durable, and so has all that came before it.
    pub(crate) fn take_through(&mut self, batch: u64) -> impl Iterator<Item = C> + use<C> {
        let later = self.0.iter().position(|(number, _)| *number > batch);
        let later = self.0.split_off(later.unwrap_or(self.0.len()));
        std::mem::replace(&mut self.0, later).into_iter().map(|(_, change)| change)
    }

    /// None of it ever happened.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
