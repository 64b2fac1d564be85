//! How a crowd is written: who is still to be told that a stream has grown.

use bytes::Bytes;
use minicbor::Decoder;
use reveille_core::Offset;
use reveille_core::crowd::{Crowd, Mark, Stretch};
use reveille_core::subscription::SubscriptionId;

use super::consumer::{read_optional, write_optional};
use super::{Read, RecordError, Writer, Written, fields, finish};

mod field {
    pub(super) const MARKS: u32 = 0;
    pub(super) const WALK: u32 = 1;
    pub(super) const AGAIN: u32 = 2;
}

/// Writes a crowd.
pub fn encode_crowd(crowd: &Crowd) -> Bytes {
    finish(64, |out| write_crowd(out, crowd))
}

/// Reads a crowd.
pub fn decode_crowd(value: &[u8]) -> Result<Crowd, RecordError> {
    read_crowd(&mut Decoder::new(value))
        .map_err(|why| RecordError { what: "crowd", why: why.to_string() })
}

fn write_crowd(out: &mut Writer, crowd: &Crowd) -> Written {
    out.map(2 + u64::from(crowd.again.is_some()))?;
    out.u32(field::MARKS)?.array(u64::try_from(crowd.marks.len()).unwrap_or(u64::MAX))?;
    for mark in &crowd.marks {
        out.array(2)?.u64(mark.youngest.0)?;
        write_optional(out, mark.before.map(Offset::position))?;
    }
    out.u32(field::WALK)?;
    write_stretch(out, crowd.walk)?;
    if let Some(again) = crowd.again {
        out.u32(field::AGAIN)?;
        write_stretch(out, again)?;
    }
    Ok(())
}

fn write_stretch(out: &mut Writer, stretch: Stretch) -> Written {
    out.array(2)?.u64(stretch.after.0)?.u64(stretch.through.0)?;
    Ok(())
}

fn read_crowd(input: &mut Decoder<'_>) -> Read<Crowd> {
    let (mut marks, mut walk, mut again) = (Vec::new(), None, None);
    fields(input, |field, input| {
        match field {
            field::MARKS => {
                for _ in 0..input.array()?.unwrap_or(0) {
                    input.array()?;
                    let youngest = SubscriptionId(input.u64()?);
                    let before = read_optional(input)?.map(Offset::new);
                    marks.push(Mark { youngest, before });
                }
            }
            field::WALK => walk = Some(read_stretch(input)?),
            field::AGAIN => again = Some(read_stretch(input)?),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    let walk = walk.ok_or_else(|| minicbor::decode::Error::message("no walk"))?;
    Ok(Crowd { marks, walk, again })
}

fn read_stretch(input: &mut Decoder<'_>) -> Read<Stretch> {
    input.array()?;
    Ok(Stretch { after: SubscriptionId(input.u64()?), through: SubscriptionId(input.u64()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowds_read_back_and_damage_is_an_error() {
        let id = SubscriptionId;
        let mark = Mark { youngest: id(9), before: None };
        let mut crowd = Crowd::new(mark, id(3));
        assert_eq!(decode_crowd(&encode_crowd(&crowd)), Ok(crowd.clone()));
        crowd = crowd.told(id(7)).unwrap();
        crowd.grown(Mark { youngest: id(u64::MAX), before: Some(Offset::new(5)) }, id(4));
        assert!(crowd.again.is_some());
        let whole = encode_crowd(&crowd);
        assert_eq!(decode_crowd(&whole), Ok(crowd));
        for cut in 0..whole.len() {
            assert!(decode_crowd(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
