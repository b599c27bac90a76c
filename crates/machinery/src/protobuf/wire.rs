//! The wire format of protobuf: fields as numbers and bytes, without knowing any message.

use super::ProtobufError;

/// What stands behind a field's number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'b> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'b [u8]),
}

/// Cuts a message into fields.
pub(super) struct Fields<'b> {
    rest: &'b [u8],
}

impl<'b> Fields<'b> {
    pub(super) fn of(message: &'b [u8]) -> Self {
        Self { rest: message }
    }

    fn field(&mut self) -> Result<(u32, Wire<'b>), ProtobufError> {
        let tag = varint(&mut self.rest)?;
        let number = u32::try_from(tag >> 3).map_err(|_| ProtobufError::IllegalTag(tag))?;
        if number == 0 {
            return Err(ProtobufError::IllegalTag(tag));
        }
        let value = match tag & 7 {
            0 => Wire::Varint(varint(&mut self.rest)?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = varint(&mut self.rest)?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::UnexpectedEnd)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            // Groups are as old as protobuf and no Kubernetes message has one.
            _ => return Err(ProtobufError::IllegalTag(tag)),
        };
        Ok((number, value))
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(*taken)
    }
}

impl<'b> Iterator for Fields<'b> {
    type Item = Result<(u32, Wire<'b>), ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Seven bits a byte, the low ones first; ten bytes hold 64 bits.
pub(super) fn varint(rest: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first().ok_or(ProtobufError::UnexpectedEnd)?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Result<Vec<(u32, Wire<'_>)>, ProtobufError> {
        Fields::of(message).collect()
    }

    #[test]
    fn cuts_every_wire_type() {
        let message = [8, 0x96, 1, 0x12, 2, b'h', b'i', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 2, 0, 0, 0];
        assert_eq!(
            fields(&message),
            Ok(vec![(1, Wire::Varint(150)), (2, Wire::Bytes(b"hi")), (3, Wire::Fixed64(1)), (4, Wire::Fixed32(2))])
        );
        assert_eq!(fields(&[]), Ok(vec![]));
    }

    #[test]
    fn refuses_what_ends_early_or_makes_no_sense() {
        assert_eq!(fields(&[8]), Err(ProtobufError::UnexpectedEnd));
        assert_eq!(fields(&[0x12, 5, 1]), Err(ProtobufError::UnexpectedEnd));
        assert_eq!(
            fields(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            Err(ProtobufError::UnexpectedEnd)
        );
        assert_eq!(fields(&[0x19, 1, 2]), Err(ProtobufError::UnexpectedEnd));
        assert_eq!(fields(&[0, 1]), Err(ProtobufError::IllegalTag(0)));
        assert_eq!(fields(&[0x0b]), Err(ProtobufError::IllegalTag(0x0b)));
        assert_eq!(fields(&[0xff; 11]), Err(ProtobufError::Overflow));
    }
}
