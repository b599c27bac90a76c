//! The frame of a message: a length that counts itself, a header of six words, a body.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::xdr::{Decoder, Encoder, XdrError};

/// The largest message in the protocol. A peer that announces more is not libvirt, or is hostile.
pub const MESSAGE_MAX: usize = 32 * 1024 * 1024;
const LENGTH_SIZE: usize = 4;
const HEADER_SIZE: usize = 24;

/// Whom a message is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The calls that every driver has.
    Remote,
    /// QEMU's monitor and agent.
    Qemu,
    /// Ping and pong.
    KeepAlive,
    /// Something else: it is ignored.
    Other(u32),
}

impl Program {
    fn number(self) -> u32 {
        match self {
            Self::Remote => 0x2000_8086,
            Self::Qemu => 0x2000_8087,
            Self::KeepAlive => 0x6b65_6570,
            Self::Other(number) => number,
        }
    }
}

impl From<u32> for Program {
    fn from(number: u32) -> Self {
        [Self::Remote, Self::Qemu, Self::KeepAlive]
            .into_iter()
            .find(|known| known.number() == number)
            .unwrap_or(Self::Other(number))
    }
}

/// What kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From us.
    Call,
    /// To one of our calls.
    Reply,
    /// An event, ping or pong.
    Message,
    /// A piece of a stream.
    Stream,
    /// A hole in a sparse stream.
    StreamHole,
}

impl Kind {
    const ALL: [(Self, i32); 5] =
        [(Self::Call, 0), (Self::Reply, 1), (Self::Message, 2), (Self::Stream, 3), (Self::StreamHole, 6)];
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Well; the end of a stream.
    Ok,
    /// The body is an error; a stream is given up.
    Error,
    /// More of the stream follows.
    Continue,
}

impl Status {
    const ALL: [(Self, i32); 3] = [(Self::Ok, 0), (Self::Error, 1), (Self::Continue, 2)];
}

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whom it is for.
    pub program: Program,
    /// Which call or event.
    pub procedure: i32,
    /// What kind of message.
    pub kind: Kind,
    /// Which call a reply belongs to; 0 in events.
    pub serial: u32,
    /// How it went.
    pub status: Status,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its header.
    pub header: Header,
    /// Its body.
    pub body: Vec<u8>,
}

/// Why no packet could be read.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The socket failed or was closed.
    #[error("libvirt's socket could not be read")]
    Read(#[from] io::Error),
    /// The length makes no sense.
    #[error("a message of {0} bytes was announced; at most {MESSAGE_MAX} are allowed and a header needs {HEADER_SIZE}")]
    Length(usize),
    /// The header makes no sense.
    #[error("a message's header is malformed")]
    Header(#[from] XdrError),
    /// Another version of the protocol.
    #[error("version {0} of the protocol is not known")]
    Version(u32),
}

impl Packet {
    /// The bytes on the wire.
    pub fn encode(&self) -> Vec<u8> {
        let length = LENGTH_SIZE + HEADER_SIZE + self.body.len();
        let mut bytes = Encoder::new()
            .u32(u32::try_from(length).unwrap_or(u32::MAX))
            .u32(self.header.program.number())
            .u32(1)
            .i32(self.header.procedure)
            .i32(number(&Kind::ALL, self.header.kind))
            .u32(self.header.serial)
            .i32(number(&Status::ALL, self.header.status))
            .finish();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Reads the next packet. Memory grows with what arrives, not with what is announced.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Self, PacketError> {
        let length = from.read_u32().await? as usize;
        let rest = length.checked_sub(LENGTH_SIZE).filter(|rest| (HEADER_SIZE..=MESSAGE_MAX).contains(rest));
        let rest = rest.ok_or(PacketError::Length(length))?;
        let mut header = [0; HEADER_SIZE];
        from.read_exact(&mut header).await?;
        let header = Header::decode(header)?;
        let size = rest - HEADER_SIZE;
        let mut body = Vec::with_capacity(size.min(64 * 1024));
        if from.take(size as u64).read_to_end(&mut body).await? < size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(Self { header, body })
    }
}

impl Header {
    fn decode(bytes: [u8; HEADER_SIZE]) -> Result<Self, PacketError> {
        let mut decoder = Decoder::new(bytes);
        let program = Program::from(decoder.u32()?);
        match decoder.u32()? {
            1 => {}
            version => return Err(PacketError::Version(version)),
        }
        Ok(Self {
            program,
            procedure: decoder.i32()?,
            kind: named(&Kind::ALL, "kind of message", decoder.i32()?)?,
            serial: decoder.u32()?,
            status: named(&Status::ALL, "status", decoder.i32()?)?,
        })
    }
}

fn number<T: Copy + PartialEq>(table: &[(T, i32)], wanted: T) -> i32 {
    table.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, number)| *number)
}

fn named<T: Copy>(table: &[(T, i32)], what: &'static str, value: i32) -> Result<T, XdrError> {
    let found = table.iter().find(|(_, number)| *number == value).map(|(name, _)| *name);
    found.ok_or(XdrError::Discriminant { what, value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Packet, PacketError> {
        let mut bytes = bytes;
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(Packet::read(&mut bytes))
    }

    fn ping() -> Packet {
        let header =
            Header { program: Program::KeepAlive, procedure: 1, kind: Kind::Message, serial: 0, status: Status::Ok };
        Packet { header, body: Vec::new() }
    }

    #[test]
    fn a_ping_on_the_wire() {
        assert_eq!(ping().encode(), b"\0\0\0\x1ckeep\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\0");
    }

    #[test]
    fn absurd_lengths_are_refused() {
        for length in [0, 3, 27, u32::try_from(MESSAGE_MAX).unwrap() + 5, u32::MAX] {
            let error = read(&length.to_be_bytes()).unwrap_err();
            assert!(matches!(error, PacketError::Length(found) if found == length as usize), "{length}: {error}");
        }
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = ping().encode();
        bytes[11] = 2;
        assert!(matches!(read(&bytes), Err(PacketError::Version(2))));
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        let mut bytes = ping().encode();
        bytes[19] = 9;
        assert!(matches!(read(&bytes), Err(PacketError::Header(XdrError::Discriminant { value: 9, .. }))));
    }

    #[test]
    fn a_packet_that_breaks_off_is_an_error() {
        let mut bytes = ping().encode();
        bytes[3] += 4;
        assert!(matches!(read(&bytes), Err(PacketError::Read(_))));
    }

    proptest! {
        #[test]
        fn packets_survive_a_round_trip(program: u32, procedure: i32, kind in 0..5usize, serial: u32, status in 0..3usize, body: Vec<u8>) {
            let header = Header {
                program: program.into(), procedure, kind: Kind::ALL[kind].0, serial, status: Status::ALL[status].0,
            };
            let packet = Packet { header, body };
            prop_assert_eq!(read(&packet.encode()).unwrap(), packet);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
