//! Where a run takes place: the directory that everything is built and measured in, and the
//! generator that makes the load.

use std::path::PathBuf;

use crate::generator::Generator;

pub(crate) struct Environment {
    /// `target`, or where cargo was told to build instead.
    pub(crate) target: PathBuf,
    pub(crate) generator: Generator,
    pub(crate) quick: bool,
}
