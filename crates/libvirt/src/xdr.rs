//! XDR (RFC 4506), as far as libvirt uses it: big-endian words of four bytes, everything padded to them.
//!
//! The decoder never allocates more than what has arrived: a length is compared with the rest of the packet first.

/// The longest string that libvirt sends or takes.
pub const STRING_MAX: usize = 4 * 1024 * 1024;

/// What is wrong with a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XdrError {
    /// It ends too early.
    #[error("{wanted} more bytes were expected and {left} are left")]
    Short {
        /// Bytes that should have followed.
        wanted: usize,
        /// Bytes that follow.
        left: usize,
    },
    /// A length is larger than what the protocol allows.
    #[error("a length of {length} is more than the allowed {limit}")]
    TooLong {
        /// What the packet says.
        length: usize,
        /// What is allowed.
        limit: usize,
    },
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A discriminant that the protocol does not have.
    #[error("{value} is no {what}")]
    Discriminant {
        /// Of what.
        what: &'static str,
        /// The value.
        value: i32,
    },
    /// It goes on after its end.
    #[error("{0} bytes follow the last value")]
    Trailing(usize),
}

/// Builds the body of a call.
#[derive(Debug, Default, Clone)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// An empty body.
    pub fn new() -> Self {
        Self::default()
    }

    /// An unsigned word.
    pub fn u32(mut self, value: u32) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A signed word.
    pub fn i32(mut self, value: i32) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// An unsigned double word.
    pub fn u64(mut self, value: u64) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A signed double word.
    pub fn i64(mut self, value: i64) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A floating point number.
    pub fn f64(mut self, value: f64) -> Self {
        self.bytes.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// Bytes whose number both sides know.
    pub fn fixed(mut self, value: &[u8]) -> Self {
        self.bytes.extend_from_slice(value);
        self.pad(value.len())
    }

    /// A string.
    pub fn string(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// Bytes with their number.
    pub fn bytes(self, value: &[u8]) -> Self {
        self.u32(u32::try_from(value.len()).unwrap_or(u32::MAX)).fixed(value)
    }

    /// A value that may be absent.
    pub fn optional<T: ?Sized>(self, value: Option<&T>, encode: impl FnOnce(Self, &T) -> Self) -> Self {
        match value {
            Some(value) => encode(self.u32(1), value),
            None => self.u32(0),
        }
    }

    /// A list.
    pub fn list<T>(self, values: &[T], encode: impl Fn(Self, &T) -> Self) -> Self {
        let head = self.u32(u32::try_from(values.len()).unwrap_or(u32::MAX));
        values.iter().fold(head, encode)
    }

    /// What was encoded.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn pad(mut self, length: usize) -> Self {
        self.bytes.resize(self.bytes.len() + padding(length), 0);
        self
    }
}

/// Reads the body of a reply or an event.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    position: usize,
}

impl Decoder {
    /// Reads `bytes` from the beginning.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), position: 0 }
    }

    /// An unsigned word.
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.array().map(u32::from_be_bytes)
    }

    /// A signed word.
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.array().map(i32::from_be_bytes)
    }

    /// An unsigned double word.
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.array().map(u64::from_be_bytes)
    }

    /// A signed double word.
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.array().map(i64::from_be_bytes)
    }

    /// A floating point number.
    pub fn f64(&mut self) -> Result<f64, XdrError> {
        self.array().map(f64::from_be_bytes)
    }

    /// Bytes whose number both sides know.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        self.take(padding(N))?;
        Ok(array)
    }

    /// A string.
    pub fn string(&mut self) -> Result<String, XdrError> {
        let length = self.length(STRING_MAX)?;
        let text = std::str::from_utf8(self.take(length)?).map(str::to_owned).map_err(|_| XdrError::NotUtf8)?;
        self.take(padding(length))?;
        Ok(text)
    }

    /// At most `limit` bytes with their number.
    pub fn bytes(&mut self, limit: usize) -> Result<Vec<u8>, XdrError> {
        let length = self.length(limit)?;
        let bytes = self.take(length)?.to_vec();
        self.take(padding(length))?;
        Ok(bytes)
    }

    /// A value that may be absent.
    pub fn optional<T>(
        &mut self,
        decode: impl FnOnce(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Option<T>, XdrError> {
        match self.u32()? {
            0 => Ok(None),
            _ => decode(self).map(Some),
        }
    }

    /// A list of at most `limit` values.
    pub fn list<T>(
        &mut self,
        limit: usize,
        mut decode: impl FnMut(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Vec<T>, XdrError> {
        let length = self.length(limit)?;
        (0..length).map(|_| decode(self)).collect()
    }

    /// Nothing may follow.
    pub fn finish(self) -> Result<(), XdrError> {
        match self.left() {
            0 => Ok(()),
            left => Err(XdrError::Trailing(left)),
        }
    }

    fn length(&mut self, limit: usize) -> Result<usize, XdrError> {
        let length = self.u32()? as usize;
        if length > limit { Err(XdrError::TooLong { length, limit }) } else { Ok(length) }
    }

    fn take(&mut self, count: usize) -> Result<&[u8], XdrError> {
        let left = self.left();
        let start = self.position;
        let taken = self.bytes.get(start..start + count).ok_or(XdrError::Short { wanted: count, left })?;
        self.position += count;
        Ok(taken)
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.position
    }
}

fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_string_has_its_length_and_is_padded() {
        assert_eq!(Encoder::new().string("abcde").finish(), b"\0\0\0\x05abcde\0\0\0");
        assert_eq!(Encoder::new().string("").finish(), b"\0\0\0\0");
    }

    #[test]
    fn absent_values_are_a_zero() {
        let bytes =
            Encoder::new().optional(None::<&str>, Encoder::string).optional(Some("a"), Encoder::string).finish();
        assert_eq!(bytes, b"\0\0\0\0\0\0\0\x01\0\0\0\x01a\0\0\0");
    }

    #[test]
    fn a_length_beyond_the_packet_is_refused_without_allocating() {
        let mut decoder = Decoder::new(b"\0\x40\0\0");
        assert_eq!(decoder.string(), Err(XdrError::Short { wanted: STRING_MAX, left: 0 }));
    }

    #[test]
    fn a_length_beyond_the_protocol_is_refused() {
        let mut decoder = Decoder::new(b"\xff\xff\xff\xff");
        assert_eq!(decoder.string(), Err(XdrError::TooLong { length: 0xffff_ffff, limit: STRING_MAX }));
        let mut decoder = Decoder::new(b"\0\0\0\x09");
        assert_eq!(decoder.list(8, Decoder::u32), Err(XdrError::TooLong { length: 9, limit: 8 }));
    }

    #[test]
    fn bytes_after_the_end_are_refused() {
        let mut decoder = Decoder::new(b"\0\0\0\x01\0");
        decoder.u32().unwrap();
        assert_eq!(decoder.finish(), Err(XdrError::Trailing(1)));
    }

    #[test]
    fn a_string_that_is_not_utf8_is_refused() {
        assert_eq!(Decoder::new(b"\0\0\0\x01\xff\0\0\0").string(), Err(XdrError::NotUtf8));
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(a: u32, b: i64, c: f64, texts: Vec<String>, maybe: Option<String>, id: [u8; 16]) {
            let bytes = Encoder::new()
                .u32(a).i64(b).f64(c)
                .list(&texts, |encoder, text| encoder.string(text))
                .optional(maybe.as_deref(), Encoder::string)
                .fixed(&id)
                .finish();
            prop_assert_eq!(bytes.len() % 4, 0);
            let mut decoder = Decoder::new(bytes);
            prop_assert_eq!(decoder.u32().unwrap(), a);
            prop_assert_eq!(decoder.i64().unwrap(), b);
            prop_assert_eq!(decoder.f64().unwrap().to_bits(), c.to_bits());
            prop_assert_eq!(decoder.list(1000, Decoder::string).unwrap(), texts);
            prop_assert_eq!(decoder.optional(Decoder::string).unwrap(), maybe);
            prop_assert_eq!(decoder.array::<16>().unwrap(), id);
            prop_assert!(decoder.finish().is_ok());
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes: Vec<u8>) {
            let mut decoder = Decoder::new(bytes);
            let _ = decoder.list(64, |decoder| decoder.optional(Decoder::string));
            let _ = decoder.array::<5>();
            let _ = decoder.finish();
        }
    }
}
