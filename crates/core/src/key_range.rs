//! Arithmetic on the byte strings that keys are: where a range of them ends, and what comes next.

use bytes::Bytes;

/// The first key that does not begin with this prefix.
pub fn after_prefix(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

/// The smallest key above a key.
pub fn above(key: &[u8]) -> Bytes {
    [key, &[0]].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one_and_nothing_is_between_a_key_and_the_one_above_it() {
        assert_eq!(after_prefix(b"ab"), Bytes::from_static(b"ac"));
        assert_eq!(after_prefix(b"a\xff\xff"), Bytes::from_static(b"b"));
        assert!(above(b"a") > Bytes::from_static(b"a"));
        assert!(above(b"a") <= Bytes::from_static(b"a\0"));
    }
}
