//! Ending a stream: at once, or later if forks still read from it.

use super::{Head, Rejected};

/// What deleting or expiring a stream comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// Forks read from it: it stays, invisible, and holds its path.
    Soft(Box<Head>),
    /// It ends, and gives up its part of its source.
    Hard,
}

/// What becomes of a source when one of its forks has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkRelease {
    /// It stays.
    Kept(Box<Head>),
    /// It was only kept for that fork: it ends too, and its own source is next.
    Ended,
}

/// Decides the end of a stream that exists.
pub fn delete(head: &Head) -> Result<Deletion, Rejected> {
    if head.soft_deleted {
        return Err(Rejected::Gone);
    }
    if head.forks == 0 {
        return Ok(Deletion::Hard);
    }
    Ok(Deletion::Soft(Box::new(Head { soft_deleted: true, ..head.clone() })))
}

/// Takes one fork off its source.
pub fn release(source: &Head) -> ForkRelease {
    assert!(source.forks > 0, "a fork's source counts it");
    let forks = source.forks - 1;
    if source.soft_deleted && forks == 0 {
        ForkRelease::Ended
    } else {
        ForkRelease::Kept(Box::new(Head { forks, ..source.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::create::tests::new_head;

    #[test]
    fn a_source_stays_until_its_last_fork_is_gone() {
        let mut head = new_head("text/plain");
        assert_eq!(delete(&head), Ok(Deletion::Hard));
        head.forks = 2;
        let Ok(Deletion::Soft(soft)) = delete(&head) else { panic!("forks hold it") };
        assert_eq!(delete(&soft), Err(Rejected::Gone));
        let ForkRelease::Kept(one) = release(&soft) else { panic!("one fork is left") };
        assert_eq!(release(&one), ForkRelease::Ended);
        head.forks = 1;
        let ForkRelease::Kept(open) = release(&head) else { panic!("it was not deleted") };
        assert_eq!(delete(&open), Ok(Deletion::Hard));
    }
}
