//! How a crowd is written: who is still to be told that a stream has grown.

use bytes::Bytes;
use minicbor::Decoder;
use reveille_core::Offset;
use reveille_core::fan_out::{FanOutCursor, IdRange, Watermark};
use reveille_core::subscription::SubscriptionId;

use super::consumer::{read_optional, write_optional};
use super::{Read, RecordError, Writer, Written, fields, finish};

mod field {
    pub(super) const MARKS: u32 = 0;
    pub(super) const WALK: u32 = 1;
    pub(super) const AGAIN: u32 = 2;
}

/// Writes a crowd.
pub fn encode_fan_out_cursor(fan_out: &FanOutCursor) -> Bytes {
    finish(64, |out| write_crowd(out, fan_out))
}

/// Reads a crowd.
pub fn decode_fan_out_cursor(value: &[u8]) -> Result<FanOutCursor, RecordError> {
    read_crowd(&mut Decoder::new(value))
        .map_err(|why| RecordError { what: "crowd", why: why.to_string() })
}

fn write_crowd(out: &mut Writer, fan_out: &FanOutCursor) -> Written {
    out.map(2 + u64::from(fan_out.again.is_some()))?;
    out.u32(field::MARKS)?.array(u64::try_from(fan_out.marks.len()).unwrap_or(u64::MAX))?;
    for mark in &fan_out.marks {
        out.array(2)?.u64(mark.youngest.0)?;
        write_optional(out, mark.before.map(Offset::position))?;
    }
    out.u32(field::WALK)?;
    write_stretch(out, fan_out.walk)?;
    if let Some(again) = fan_out.again {
        out.u32(field::AGAIN)?;
        write_stretch(out, again)?;
    }
    Ok(())
}

fn write_stretch(out: &mut Writer, stretch: IdRange) -> Written {
    out.array(2)?.u64(stretch.after.0)?.u64(stretch.through.0)?;
    Ok(())
}

fn read_crowd(input: &mut Decoder<'_>) -> Read<FanOutCursor> {
    let (mut marks, mut walk, mut again) = (Vec::new(), None, None);
    fields(input, |field, input| {
        match field {
            field::MARKS => {
                for _ in 0..input.array()?.unwrap_or(0) {
                    input.array()?;
                    let youngest = SubscriptionId(input.u64()?);
                    let before = read_optional(input)?.map(Offset::new);
                    marks.push(Watermark { youngest, before });
                }
            }
            field::WALK => walk = Some(read_stretch(input)?),
            field::AGAIN => again = Some(read_stretch(input)?),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    let walk = walk.ok_or_else(|| minicbor::decode::Error::message("no walk"))?;
    Ok(FanOutCursor { marks, walk, again })
}

fn read_stretch(input: &mut Decoder<'_>) -> Read<IdRange> {
    input.array()?;
    Ok(IdRange { after: SubscriptionId(input.u64()?), through: SubscriptionId(input.u64()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowds_read_back_and_damage_is_an_error() {
        let id = SubscriptionId;
        let mark = Watermark { youngest: id(9), before: None };
        let mut fan_out = FanOutCursor::new(mark, id(3));
        assert_eq!(decode_fan_out_cursor(&encode_fan_out_cursor(&fan_out)), Ok(fan_out.clone()));
        fan_out = fan_out.told(id(7)).unwrap();
        fan_out.grown(Watermark { youngest: id(u64::MAX), before: Some(Offset::new(5)) }, id(4));
        assert!(fan_out.again.is_some());
        let whole = encode_fan_out_cursor(&fan_out);
        assert_eq!(decode_fan_out_cursor(&whole), Ok(fan_out));
        for cut in 0..whole.len() {
            assert!(decode_fan_out_cursor(&whole[..cut]).is_err(), "cut at {cut}");
        }
    }
}
