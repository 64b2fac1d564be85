//! Keys of the API, and keys that sign.

#[cfg(test)]
mod tests;
