//! SHA-256 digests of content, and readers that compute them on the way.

use std::{fmt, io, str::FromStr};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A SHA-256 digest: `sha256:<64 hexadecimal digits>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(String);

impl Digest {
    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digits alone: a safe name for a file.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.0)
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("sha256:").ok_or("only sha256 digests are supported")?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() != 64 || !hex.bytes().all(digit) {
            return Err("a sha256 digest has 64 lower-case hexadecimal digits");
        }
        Ok(Self(hex.to_owned()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Computes a digest piece by piece.
pub(crate) struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        let hex = self.0.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Digest(hex)
    }
}

/// A reader that computes the digest of all that is read through it, and stops at a limit.
pub(crate) struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
    left: u64,
    count: u64,
}

impl<R: io::Read> HashingReader<R> {
    /// Reads from `inner`, at most `limit` bytes.
    pub(crate) fn new(inner: R, limit: u64) -> Self {
        Self { inner, hasher: Hasher::default(), left: limit, count: 0 }
    }

    /// Reads to the end and answers the digest and the number of bytes of everything.
    pub(crate) fn finish(mut self) -> io::Result<(Digest, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.hasher.finish(), self.count))
    }
}

impl<R: io::Read> io::Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let read = buffer.get(..count).unwrap_or_default();
        let length = u64::try_from(count).unwrap_or(u64::MAX);
        self.left =
            self.left.checked_sub(length).ok_or_else(|| io::Error::other("the image is larger than allowed"))?;
        self.count = self.count.saturating_add(length);
        self.hasher.update(read);
        Ok(count)
    }
}

/// A writer that computes the digest of all that is written through it.
pub(crate) struct HashingWriter<W> {
    inner: W,
    hasher: Hasher,
}

impl<W: io::Write> HashingWriter<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hasher: Hasher::default() }
    }

    pub(crate) fn finish(self) -> (Digest, W) {
        (self.hasher.finish(), self.inner)
    }
}

impl<W: io::Write> io::Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_parsed_strictly() {
        let digest = Digest::of(b"");
        assert_eq!(digest.to_string(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_string().parse(), Ok(digest.clone()));
        let upper = digest.to_string().to_uppercase();
        for bad in ["sha256:", "sha512:00", "sha256:../../../etc/passwd", &upper, &digest.to_string()[..70]] {
            assert!(bad.parse::<Digest>().is_err(), "{bad}");
        }
    }
}
